"""What changed between two texts or two lists, to be read: what stayed, what came, what went."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True)
class Piece:
    """A part of both texts or of one. `kind` is the element that marks it up: `span`, `ins` or `del`."""

    kind: str
    text: str


def diff_of_texts(before: str, after: str) -> list[Piece]:
    """The pieces of both texts in order, compared word by word."""
    old, new = _words(before), _words(after)
    return list(_pieces(old, new))


def diff_of_lists(before: Iterable[str], after: Iterable[str]) -> list[Piece]:
    """The items of both lists: those that went, then those that are there."""
    before, after = list(before), list(after)
    went = [Piece("del", item) for item in before if item not in after]
    return went + [Piece("span" if item in before else "ins", item) for item in after]


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def _pieces(old: list[str], new: list[str]) -> Iterator[Piece]:
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield Piece("span", "".join(new[k:m]))
            continue
        if i < j:
            yield Piece("del", "".join(old[i:j]))
        if k < m:
            yield Piece("ins", "".join(new[k:m]))
