"""Decide whether a text contains a turn, by comparing words in any script, as a quick reader would."""

import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import takewhile
from operator import eq

ENOUGH = 0.8  # share of a turn's content words that a text must have to contain the turn
HALF = 0.5  # share that a statement derived from the turn must have
# English words that say nothing about a text's subject.
EMPTY = frozenset(
    "a an the to and or of in on at for with about it that this so but my your i you he she we they is are was were be "
    "been has have had do did does not no as by from what when where who which how why their his her its our me him "
    "them us if then than will would can could".split()
)
WORD = re.compile(r"[^\W_]+")
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")

Words = frozenset[str]


def content_words(text: object) -> Words:
    """Return the content words of a text, without accents. In scripts without spaces, return pairs of characters."""
    parts = unicodedata.normalize("NFKD", str(text).casefold())
    plain = "".join(part for part in parts if not unicodedata.category(part).startswith("M"))
    pairs = {pair for run in UNSPACED.findall(plain) for pair in _pairs(run)}
    return frozenset(pairs.union(WORD.findall(UNSPACED.sub(" ", plain))) - EMPTY)


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def stands_in(words: Words, have: Words, enough: float = ENOUGH) -> bool:
    """Return whether enough of a turn's content words are present."""
    return len(words & have) >= enough * len(words)


def share(parts: Collection[object], of: Collection[object]) -> float:
    """Return the share of `of` that is in `parts`, or 0 if `of` is empty."""
    return len(parts) / len(of) if of else 0.0


def same_beginning(text: str, before: str) -> float:
    """Return the share of a text that is also the start of another."""
    same = sum(1 for _ in takewhile(bool, map(eq, text, before)))
    return same / len(text)


def fill_budget(lines: Sequence[tuple[str, int]], budget: int) -> tuple[str, int]:
    """Take lines in order, up to the first that exceeds a budget.

    Args:
        lines: The lines with their tokens.
        budget: The maximum number of tokens.

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
