"""The figures in docs/trust.md, between two marks."""

from collections.abc import Sequence
from pathlib import Path

from memoryproject.conf import BASE_DIR

PAGE = BASE_DIR / "docs" / "trust.md"
BEGIN, END = "<!-- figures: made by `make trust` -->", "<!-- /figures -->"

Figure = tuple[str, str, str]  # what was done, how often, and what went wrong


def section(machine: str, figures: Sequence[Figure], faults: str, remarks: Sequence[str]) -> str:
    """Return what stands between the marks.

    Args:
        machine: date, version, and what it ran on.
        figures: in their order.
        faults: the table of the drill.
        remarks: what went wrong, a line each.
    """
    lines = ["| attack | amount | failures |", "| --- | --- | --- |"]
    lines += [f"| {what} | {much} | {wrong} |" for what, much, wrong in figures]
    parts = [machine, "\n".join(lines), faults, "\n".join(f"- {remark}" for remark in remarks)]
    return "\n\n".join(part for part in parts if part)


def put(text: str, page: Path = PAGE) -> None:
    """Put the section between the marks of the page.

    Raises:
        ValueError: the page has no such marks.
    """
    whole = page.read_text(encoding="utf-8")
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no marks of the figures.")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
