"""Compare texts for pages that mark changes, word by word or line by line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True)
class DiffPart:
    """A part of one text or both.

    Args:
        change: `same`, `removed` or `added`.
        text: its text, including spaces and line breaks.
    """

    change: str
    text: str

    @property
    def words(self) -> int:
        return len(self.text.split())


def word_diff(before: str, after: str) -> list[DiffPart]:
    """Compare two texts word by word.

    Without the added parts, the result is the old text; without the removed parts, the new one.
    """
    old, new = (re.findall(r"\s*\S+|\s+", text) for text in (before, after))
    parts: list[DiffPart] = []
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            parts.append(DiffPart("same", "".join(old[i:j])))
            continue
        changed = DiffPart("removed", "".join(old[i:j])), DiffPart("added", "".join(new[k:m]))
        parts += [part for part in changed if part.text]
    return parts


@dataclass(frozen=True)
class DiffLine:
    """A line that occurs in one of the texts, or in both.

    Args:
        kind: `same`, `removed` or `added`.
        old, new: the line's number in each text, from 1; None if the text doesn't contain the line.
    """

    kind: str
    old: int | None
    new: int | None
    text: str


def line_diff(old: str, new: str) -> list[list[DiffLine]]:
    """Return the places where two texts differ, each with three lines of context; empty if the texts are equal."""
    before, after = old.splitlines(), new.splitlines()
    groups = SequenceMatcher(None, before, after).get_grouped_opcodes()
    return [[line for code in group for line in _lines(code, before, after)] for group in groups]


def _lines(code: tuple[str, int, int, int, int], before: list[str], after: list[str]) -> Iterator[DiffLine]:
    tag, first, end, new_first, new_end = code
    if tag == "equal":
        for shift, text in enumerate(before[first:end]):
            yield DiffLine("same", first + shift + 1, new_first + shift + 1, text)
        return
    for number, text in enumerate(before[first:end], start=first + 1):
        yield DiffLine("removed", number, None, text)
    for number, text in enumerate(after[new_first:new_end], start=new_first + 1):
        yield DiffLine("added", None, number, text)
