"""A hook for MkDocs that makes it parse lists like GitHub.

Python-Markdown requires an empty line before a list, and four spaces before each continuation line of an item.
"""

import re
from typing import Any

_ITEM = re.compile(r"( *)((?:[-*]|\d+\.) +)(.*)")
_FENCE = re.compile(r" *(```|~~~)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with its lists rewritten for Python-Markdown."""
    lines: list[str] = []
    offsets: list[int] = []  # where the contents of the items around the line start
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
    """Return whether the last lines, up to an empty line, belong to an item."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if _ITEM.fullmatch(line):
            return True
    return False
