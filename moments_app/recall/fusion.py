"""Making one order out of several: pure functions over scores."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

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


def shared_with_neighbours(scores: Mapping[Place, float]) -> dict[Place, float]:
    """Each turn's score with its share of those of the turns around it, and the turns around that had none.

    Args:
        scores: of the turns that were found; what is below 0 is not shared.

    Returns:
        Some places may lie beyond the end of their session.
    """
    shared: dict[Place, float] = defaultdict(float, scores)
    for (session, sequence), score in scores.items():
        for distance, (to_later, to_earlier) in enumerate(zip(FROM_BEFORE, FROM_AFTER, strict=True), start=1):
            shared[session, sequence + distance] += to_later * max(score, 0)
            if distance <= sequence:
                shared[session, sequence - distance] += to_earlier * max(score, 0)
    return dict(shared)
