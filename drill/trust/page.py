"""The figures in docs/trust.md, between two marks."""

from collections.abc import Sequence
from pathlib import Path

from memoryproject.conf import BASE_DIR

PAGE = BASE_DIR / "docs" / "trust.md"
BEGIN, END = "<!-- figures: made by `make trust` -->", "<!-- /figures -->"

Figure = tuple[str, str, str]  # the test, the number of runs, and the failures


def section(machine: str, figures: Sequence[Figure], faults: str, remarks: Sequence[str]) -> str:
    """Return the section between the marks.

    Args:
        machine: The date, the version and the machine.
        figures: The figures in order.
        faults: The table of the drill.
        remarks: The failures, one per line.
    """
    lines = ["| attack | amount | failures |", "| --- | --- | --- |"]
    lines += [f"| {what} | {much} | {wrong} |" for what, much, wrong in figures]
    parts = [machine, "\n".join(lines), faults, "\n".join(f"- {remark}" for remark in remarks)]
    return "\n\n".join(part for part in parts if part)


def put(text: str, page: Path = PAGE) -> None:
    """Put the section between the marks of the page.

    Raises:
        ValueError: The page has no such marks.
    """
    whole = page.read_text(encoding="utf-8")
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no marks of the figures.")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
