"""Choosing among what is known already: an engine is sent what is near to the turns that it reads, not all of it."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from moments_app.engines.transcript import Turn
from sessions_app import lexemes

SAME = 0.8  # of a text's words that another has which says the same
NEAR = 1.0  # a word that no other text has, or some that few have

_DATE = re.compile(r"[\[(]\d{4}-\d\d-\d\d[\])]")


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
    said = _Said(turns)
    shared = [said.shared(text) for text in texts]
    having = Counter(stem for stems in shared for stem in stems)
    worth = [sum(1 / having[stem] for stem in sorted(stems)) for stems in shared]
    best = sorted(range(len(texts)), key=lambda place: (-worth[place], place))[:most]
    return sorted(place for place in best if worth[place] >= NEAR)


def unlike(texts: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return the texts of which none of the others has nearly all words, whatever their dates."""
    known = list(others)
    languages = lexemes.languages_of([*texts, *known])
    said = [lexemes.stems_in(_DATE.sub(" ", other), languages) for other in known]
    own = [lexemes.stems_in(_DATE.sub(" ", text), languages) for text in texts]
    return [
        text
        for text, stems in zip(texts, own, strict=True)
        if not any(len(stems & other) >= SAME * len(stems) for other in said)
    ]


class _Said:
    """The words of turns, in the languages of them all: that of a short text by itself would be a guess.

    Args:
        turns: to be near to.
    """

    def __init__(self, turns: Iterable[Turn]) -> None:
        texts = [turn.content for turn in turns]
        self._languages = lexemes.languages_of(texts)
        self._stems = frozenset(stem for text in texts for stem in lexemes.stems_in(text, self._languages))

    def shared(self, text: str) -> frozenset[str]:
        """Return the stems that a text has in common with the turns."""
        return lexemes.stems_in(text, self._languages) & self._stems
