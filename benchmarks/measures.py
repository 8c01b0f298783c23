"""Measures of what counts as found, judged by words like a reader at a glance would do, in any script."""

import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import takewhile
from operator import eq

ENOUGH = 0.8  # share of a turn's content words that a text must have to contain the turn
HALF = 0.5  # share that a statement must have that was made from the turn
# English words that say nothing of what a text is about.
EMPTY = frozenset(
    "a an the to and or of in on at for with about it that this so but my your i you he she we they is are was were be "
    "been has have had do did does not no as by from what when where who which how why their his her its our me him "
    "them us if then than will would can could".split()
)
WORD = re.compile(r"[^\W_]+")
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")

Words = frozenset[str]


def content_words(text: object) -> Words:
    """Return the content words of a text, without accents; in scripts without spaces, pairs of characters."""
    parts = unicodedata.normalize("NFKD", str(text).casefold())
    plain = "".join(part for part in parts if not unicodedata.category(part).startswith("M"))
    pairs = {pair for run in UNSPACED.findall(plain) for pair in _pairs(run)}
    return frozenset(pairs.union(WORD.findall(UNSPACED.sub(" ", plain))) - EMPTY)


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def stands_in(words: Words, have: Words, enough: float = ENOUGH) -> bool:
    """Return True if enough of a turn's content words are there."""
    return len(words & have) >= enough * len(words)


def share(parts: Collection[object], of: Collection[object]) -> float:
    """Return the share of something that is there; 0 if there is nothing."""
    return len(parts) / len(of) if of else 0.0


def same_beginning(text: str, before: str) -> float:
    """Return the share of a text that is also the beginning of another."""
    same = sum(1 for _ in takewhile(bool, map(eq, text, before)))
    return same / len(text)


def fill_budget(lines: Sequence[tuple[str, int]], budget: int) -> tuple[str, int]:
    """Take lines in order, up to the first that doesn't fit into a budget.

    Args:
        lines: The lines with their tokens.
        budget: The most tokens.

    Returns:
        The text and its tokens.
    """
    taken, used = [], 0
    for line, tokens in lines:
        if used + tokens > budget:
            break
        taken.append(line)
        used += tokens
    return "\n".join(taken), used
