"""Split a word into pieces, so that each word within a few edits contains at least one of them.

PostgreSQL compares the pieces with a vocabulary much faster than it could count edits. An edit inserts, deletes or
replaces a letter, or swaps two adjacent letters.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

MOST_EDITS = 2
LONG = 8  # letters of a word in which two edits are tolerated
END = 3  # maximum letters of a piece at the start or the end of a word
MIDDLE = 2  # letters of a piece in the middle


def tolerated_edits(word: str) -> int:
    """Return the number of edits by which a mistyped word may differ from a known one."""
    return MOST_EDITS if len(word) >= LONG else 1


def pieces(words: Iterable[str]) -> Mapping[str, set[str]]:
    """Return the pieces of some words. Each key is the SQL expression over `bare` to compare with its pieces."""
    found: dict[str, set[str]] = defaultdict(set)
    for word in words:
        for part, piece in _of_two_edits(word) if tolerated_edits(word) == MOST_EDITS else _of_one_edit(word):
            found[part].add(piece)
    return found


def _of_one_edit(word: str) -> Iterator[tuple[str, str]]:
    """Yield both halves. An edit leaves one of them unchanged, unless it swaps the letters where they meet."""
    half = len(word) // 2
    yield _start(word, min(half, END))
    yield _end(word, min(len(word) - half, END))
    if 0 < half <= END and len(word) - half <= END:
        yield "bare", f"{word[: half - 1]}{word[half]}{word[half - 1]}{word[half + 1 :]}"


def _of_two_edits(word: str) -> Iterator[tuple[str, str]]:
    """Yield the start, the end, and two letters between them.

    If the edits change both the start and the end, neither reaches these two letters: a swap changes only one letter
    that belongs to neither. The first edit may move them by one place.
    """
    size = END if len(word) >= 2 * END + 2 + MIDDLE else END - 1
    yield _start(word, size)
    yield _end(word, size)
    for place in range(size + 1, size + 4):
        yield f"substr(bare, {place}, {MIDDLE})", word[size + 1 : size + 1 + MIDDLE]


def _start(word: str, size: int) -> tuple[str, str]:
    return f"left(bare, {size})", word[:size]


def _end(word: str, size: int) -> tuple[str, str]:
    return f"right(bare, {size})", word[len(word) - size :]
