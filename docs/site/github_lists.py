"""A hook for MkDocs: lists as GitHub reads them.

Python-Markdown wants an empty line before a list, and four spaces before whatever belongs to an item.
"""

import re
from typing import Any

_ITEM = re.compile(r"( *)((?:[-*]|\d+\.) +)(.*)")
_FENCE = re.compile(r" *(```|~~~)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with its lists written as Python-Markdown reads them."""
    lines: list[str] = []
    offsets: list[int] = []  # of the contents of the items that a line is in
    is_code = False
    for line in markdown.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and not is_code:
            while offsets and indent < offsets[-1]:
                offsets.pop()
        depth = len(offsets)
        item = None if is_code else _ITEM.fullmatch(line)
        if item and indent < 4 * depth + 4:
            if lines and lines[-1].strip() and not _ITEM.fullmatch(lines[-1]) and depth == 0 and not _in_list(lines):
                lines.append("")
            lines.append(f"{'    ' * depth}{item[2].strip()} {item[3]}")
            offsets.append(indent + len(item[2]))
            continue
        if _FENCE.match(line):
            is_code = not is_code
        own = line[offsets[-1] :] if offsets and line.strip() else line
        lines.append(f"{'    ' * depth}{own}" if line.strip() else "")
    return "\n".join(lines)


def _in_list(lines: list[str]) -> bool:
    """Tell whether the last lines, up to an empty one, belong to an item."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if _ITEM.fullmatch(line):
            return True
    return False
