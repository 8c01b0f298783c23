"""Two texts line by line: what was taken away, what came, and a little of what stayed around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True)
class DiffLine:
    """A line of one text or both.

    Args:
        kind: `same`, `removed` or `added`.
        old, new: its number in each text, from 1; None where it isn't in it.
        text: of the line.
    """

    kind: str
    old: int | None
    new: int | None
    text: str


def hunks(old: str, new: str) -> list[list[DiffLine]]:
    """The stretches where two texts differ, each with three lines around; empty where they are the same."""
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
