"""Choose the known texts that are most similar to the turns that an engine reads, because not all can be sent."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from moments_app.engines.transcript import Turn
from sessions_app import lexemes

SAME = 0.8  # share of a text's words that another text must have to repeat it
NEAR = 1.0  # minimum: one word that no other text has, or several that few texts have

_DATE = re.compile(r"[\[(]\d{4}-\d\d-\d\d[\])]")


def nearest(texts: Sequence[str], turns: Iterable[Turn], most: int) -> list[int]:
    """Return the indexes of the texts that share the most words with turns, sorted.

    A word that many texts have weighs little. A text that shares only such words is left out.

    Args:
        texts: the texts to choose from.
        turns: the turns to compare with.
        most: maximum number of texts.
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
    """Return the texts that none of the others repeats, ignoring dates."""
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
    """The words of turns, in the languages of all turns, because the language of a short text is uncertain.

    Args:
        turns: the turns to compare with.
    """

    def __init__(self, turns: Iterable[Turn]) -> None:
        texts = [turn.content for turn in turns]
        self._languages = lexemes.languages_of(texts)
        self._stems = frozenset(stem for text in texts for stem in lexemes.stems_in(text, self._languages))

    def shared(self, text: str) -> frozenset[str]:
        """Return the stems that a text has in common with the turns."""
        return lexemes.stems_in(text, self._languages) & self._stems
