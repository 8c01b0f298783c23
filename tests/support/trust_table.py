"""Rewrite the list of tests at the end of docs/trust.md: `python -m tests.support.trust_table`."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/trust.md"
HEADING = "## The tests\n"
RUN = "\n`pytest -k test_row_10_` runs the tests of row 10.\n"
ROW = re.compile(r"test_row_(\d+)")


def listed() -> str:
    """Return the tests that prove each row, sorted by row, file and position in the file."""
    rows = groupby(sorted(_proofs()), key=lambda proof: proof[0])
    names = "\n".join("".join(f"{name}\n" for *_, name in proofs) for _, proofs in rows)
    return f"{HEADING}{RUN}\n```\n{names}```\n"


def _proofs() -> Iterator[tuple[int, str, int, str]]:
    for path in (ROOT / "tests").rglob("test_*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and (row := ROW.match(function.name)):
                yield int(row[1]), str(path.relative_to(ROOT)), function.lineno, function.name


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index(HEADING)] + listed())
