"""Making one order out of several: pure functions over scores."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import TypeVar

MEANING_WEIGHT = 0.75  # of a turn's similarity beside its words, both in standard deviations

K = TypeVar("K", bound=Hashable)

# A place in a conversation: primary key of the session, sequence of the turn.
Place = tuple[int, int]

# What a turn gets of the score of the turn so many places before it, and after it. An answer often has no word of what
# it answers; measured in docs/benchmarks.md.
FROM_BEFORE = (0.5, 0.3, 0.15, 0.08)
FROM_AFTER = (0.4, 0.2, 0.1, 0.05)


def reciprocal_ranks(rankings: Sequence[Sequence[K]], k: int) -> dict[K, float]:
    """Reciprocal rank fusion: Σ 1 / (k + rank), ranks from 1 (Cormack, Clarke and Büttcher, SIGIR 2009).

    Args:
        rankings: each best first.
        k: the larger, the less the first places count.
    """
    scores: dict[K, float] = defaultdict(float)
    for ranking in rankings:
        for rank, found in enumerate(ranking, start=1):
            scores[found] += 1 / (k + rank)
    return dict(scores)


def shared_with_neighbours(scores: Mapping[Place, float], *, base: float = 0.0) -> dict[Place, float]:
    """Each turn's score with its share of those of the turns around it, and the turns around that were not found.

    Args:
        scores: of the turns that were found; what is below 0 is not shared.
        base: score of a turn that was not found.

    Returns:
        Some places may lie beyond the end of their session.
    """
    shared: dict[Place, float] = defaultdict(lambda: base, scores)
    for (session, sequence), score in scores.items():
        for distance, (to_later, to_earlier) in enumerate(zip(FROM_BEFORE, FROM_AFTER, strict=True), start=1):
            shared[session, sequence + distance] += to_later * max(score, 0)
            if distance <= sequence:
                shared[session, sequence - distance] += to_earlier * max(score, 0)
    return dict(shared)


def fused_turns(text: Mapping[Place, float], similarity: Mapping[Place, float]) -> dict[Place, float]:
    """The order of turns: both searches in standard deviations, added up, and shared with the turns around.

    Args:
        text: scores of those found by words.
        similarity: cosines of those found by meaning.

    Returns:
        As `shared_with_neighbours`; higher is better.
    """
    if not similarity:
        return shared_with_neighbours(text)
    places = text.keys() | similarity.keys()
    least = min(similarity.values())
    said = _in_deviations([text.get(place, 0.0) for place in places])
    near = _in_deviations([similarity.get(place, least) for place in places])

    def fused(place: Place | None) -> float:
        """Of a place; None is one that neither search found."""
        by_words, by_meaning = (0.0, least) if place is None else (text.get(place, 0.0), similarity.get(place, least))
        return said(by_words) + MEANING_WEIGHT * near(by_meaning)

    return shared_with_neighbours({place: fused(place) for place in places}, base=fused(None))


def _in_deviations(values: Sequence[float]) -> Callable[[float], float]:
    """A value's distance from the mean of all, in standard deviations; 0 where all are equal."""
    mean, deviation = fmean(values), pstdev(values)
    return lambda value: (value - mean) / deviation if deviation > 1e-9 else 0.0
