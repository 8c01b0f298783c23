"""Choosing among what is known already: an engine is sent what is near to the turns that it reads, not all of it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from moments_app.engines.transcript import Turn
from sessions_app import lexemes

NEAR = 1.0  # a word that no other text has, or some that few have


def nearest(texts: Sequence[str], turns: Iterable[Turn], most: int) -> list[int]:
    """Return the places of the texts that share most with turns, in their order.

    A word weighs as little as texts have it; a text with no more in common than most have is near to nothing.

    Args:
        texts: to choose among.
        turns: to be near to.
        most: number of places.
    """
    if len(texts) <= most:
        return list(range(len(texts)))
    said = frozenset(stem for turn in turns for stem in lexemes.stems_in(turn.content))
    shared = [lexemes.stems_in(text) & said for text in texts]
    having = Counter(stem for stems in shared for stem in stems)
    worth = [sum(1 / having[stem] for stem in sorted(stems)) for stems in shared]
    best = sorted(range(len(texts)), key=lambda place: (-worth[place], place))[:most]
    return sorted(place for place in best if worth[place] >= NEAR)
