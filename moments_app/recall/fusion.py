"""Making one order out of several: pure functions over scores."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

MEANING_WEIGHT = 1.0  # of similarity beside words, both in standard deviations
SEVERAL_WORDS = 1.5  # exponent: half of a query's words in one text say more than a quarter of them in each of two

K = TypeVar("K", bound=Hashable)

# A place in a conversation: primary key of the session, sequence of the turn.
Place = tuple[int, int]

# A distance between turns, and what a turn gets of the score of the turn so far before it, and of the one after it. An
# answer often has no word of what it answers; measured in docs/benchmarks.md.
SHARES = ((1, 0.5, 0.4), (2, 0.3, 0.2), (3, 0.15, 0.1), (4, 0.08, 0.05))


def shared_with_neighbours(
    scores: Mapping[Place, float], *, base: float = 0.0, least: float = 0.0
) -> dict[Place, float]:
    """Return each turn's score with its share of those of the turns around it, and the turns around, found or not.

    Args:
        scores: of the turns that were found.
        base: score of a turn that was not found.
        least: score, at least 0, that has to be exceeded to be shared.

    Returns:
        Some places may lie beyond the end of their session.
    """
    shared: dict[Place, float] = defaultdict(lambda: base, scores)
    for (session, sequence), score in scores.items():
        if score <= least:
            continue
        for distance, to_later, to_earlier in SHARES:
            shared[session, sequence + distance] += to_later * score
            if distance <= sequence:
                shared[session, sequence - distance] += to_earlier * score
    return dict(shared)


def fused(
    text: Mapping[K, float], similarity: Mapping[K, float], *, unembedded: Collection[K] = ()
) -> tuple[dict[K, float], float]:
    """Add up what both searches say, each in standard deviations, so that scores of all kinds of memory compare.

    Args:
        text: scores of those found by words, as shares of what the query's words are worth.
        similarity: cosines of those found by meaning.
        unembedded: those without a vector so far: of their meaning nothing is known, so it counts as average.

    Returns:
        The score of each, higher is better, and the score of one that neither search found.
    """
    text = {key: share**SEVERAL_WORDS for key, share in text.items()}
    if not similarity:
        return text, 0.0
    keys = text.keys() | similarity.keys()
    least = min(similarity.values())
    said = _in_deviations([text.get(key, 0.0) for key in keys])
    near = _in_deviations([similarity.get(key, least) for key in keys if key not in unembedded])

    def score(key: K) -> float:
        meant = 0.0 if key in unembedded else near(similarity.get(key, least))
        return said(text.get(key, 0.0)) + MEANING_WEIGHT * meant

    return {key: score(key) for key in keys}, said(0.0) + MEANING_WEIGHT * near(least)


def _in_deviations(values: Sequence[float]) -> Callable[[float], float]:
    """Return what tells a value's distance from the mean of all, in standard deviations; 0 where all are equal."""
    mean = fmean(values)
    deviation = math.sqrt(fmean((value - mean) ** 2 for value in values))
    return lambda value: (value - mean) / deviation if deviation > 1e-9 else 0.0
