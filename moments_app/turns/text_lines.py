"""Split a text into lines: the items of lists with their headings, and the sentences of other text."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

ITEM = "- "

_SENTENCE_END = re.compile(r"(?:(?<=[.!?])(?=\s)|(?<=[。！？]))(\s*)")


@dataclass(frozen=True)
class Line:
    """A line of a text.

    Args:
        heading: its heading; blank for none.
    """

    text: str
    heading: str = ""


def lines_of(text: str) -> list[Line]:
    """Split a text into lines."""
    lines: list[Line] = []
    heading = ""
    rows = [row.rstrip() for row in text.split("\n") if row.strip()]
    for number, row in enumerate(rows):
        following = rows[number + 1] if number + 1 < len(rows) else ""
        if row.startswith(ITEM):
            lines.append(Line(row, heading))
        elif row.endswith(":") and following.startswith(ITEM):
            heading = row
        else:
            heading = ""
            lines += _sentences(row)
    return lines


def _sentences(row: str) -> Iterable[Line]:
    return (Line(text) for text in _SENTENCE_END.split(row)[::2] if text)
