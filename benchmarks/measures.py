"""What counts as found: by words, as one who reads would judge at a glance, in any script."""

import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import takewhile
from operator import eq

ENOUGH = 0.8  # of a turn's content words, for it to stand in a text
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
    """The words of a text that say something, without accents; pairs of characters where a script has no spaces."""
    parts = unicodedata.normalize("NFKD", str(text).casefold())
    plain = "".join(part for part in parts if not unicodedata.category(part).startswith("M"))
    pairs = {pair for stretch in UNSPACED.findall(plain) for pair in _pairs(stretch)}
    return frozenset(pairs.union(WORD.findall(UNSPACED.sub(" ", plain))) - EMPTY)


def _pairs(stretch: str) -> list[str]:
    return [stretch[at : at + 2] for at in range(max(1, len(stretch) - 1))]


def stands_in(words: Words, have: Words) -> bool:
    """Enough of a turn's content words are there."""
    return len(words & have) >= ENOUGH * len(words)


def share(parts: Collection[object], of: Collection[object]) -> float:
    """How much of something is there; nothing of nothing."""
    return len(parts) / len(of) if of else 0.0


def same_beginning(text: str, before: str) -> float:
    """Share of a text that is the beginning of another too."""
    same = sum(1 for _ in takewhile(bool, map(eq, text, before)))
    return same / len(text)


def filled(lines: Sequence[tuple[str, int]], budget: int) -> tuple[str, int]:
    """Lines in their order, up to the first that a budget doesn't hold.

    Args:
        lines: with their tokens.
        budget: of tokens.

    Returns:
        The text, and its tokens.
    """
    taken, used = [], 0
    for line, tokens in lines:
        if used + tokens > budget:
            break
        taken.append(line)
        used += tokens
    return "\n".join(taken), used
