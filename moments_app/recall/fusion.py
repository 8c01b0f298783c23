"""Merge several rankings into one, with pure functions over scores."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from heapq import nlargest
from statistics import fmean
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

# The place of a turn: the primary key of its session, and its sequence.
Place = tuple[int, int]
# The turns that a moment covers: primary key of the session, sequences of the first and the last turn.
TurnSpan = tuple[int, int, int]

# For each distance: the share of a turn's score that the turn after it gets, and the share for the turn before it. An
# answer often has no word of the question; docs/benchmarks.md has the measurements.
SHARES = ((1, 0.5, 0.4), (2, 0.3, 0.2), (3, 0.15, 0.1), (4, 0.08, 0.05))
CANDIDATES = 150  # best results of each search that are ranked
NEAR_PART = 0.5  # factor of the shares for similarity; the vectors of adjacent turns are already similar
RANK_OFFSET = 60  # of `reciprocal_ranks`; a larger one makes the first ranks more alike
SESSION_SHARE, SESSION_BEST = 0.2, 3  # share of the mean of a session's best scores that is added to each of its turns
MOMENT_SHARE = 0.2  # share of a moment's score that is added to each of its turns


def word_scores(shares: Mapping[K, float], worth: float) -> dict[K, float]:
    """Return scores that grow with the rarity of the matched words and with their share of the query.

    A text with all of the query's rare words outranks any similarity. If texts have few of these words, because they
    are worded differently, similarity decides.

    Args:
        shares: The share of the query's total word weight that each text matches.
        worth: The sum of the inverse document frequencies of the query's words.
    """
    return {key: worth * share**2 for key, share in shares.items()}


def near_scores(similarity: Mapping[K, float], *, unembedded: Collection[K] = ()) -> dict[K, float]:
    """Return how far each text is above the least similar of the best `CANDIDATES`, in standard deviations.

    Args:
        similarity: The cosines of the texts that were found by meaning.
        unembedded: Texts without a vector so far. They get the mean, because their meaning is unknown.
    """
    if not similarity:
        return {}
    nearest = nlargest(CANDIDATES, similarity.values())
    mean = fmean(nearest)
    deviation = math.sqrt(fmean((cosine - mean) ** 2 for cosine in nearest))
    if deviation < 1e-9:
        return dict.fromkeys(similarity, 0.0)
    scores = {key: max(0.0, cosine - nearest[-1]) / deviation for key, cosine in similarity.items()}
    return scores | dict.fromkeys(unembedded, (mean - nearest[-1]) / deviation)


def reciprocal_ranks(*rankings: Iterable[K]) -> dict[K, float]:
    """Return scores that depend only on the ranks in several rankings, best first.

    The method is that of Cormack et al., "Reciprocal Rank Fusion" (2009).
    """
    scores: dict[K, float] = defaultdict(float)
    for ranking in rankings:
        for rank, key in enumerate(ranking, start=RANK_OFFSET + 1):
            scores[key] += 1 / rank
    return {key: scores[key] for key in sorted(scores, key=lambda key: -scores[key])}


def turn_scores(words: Mapping[Place, float], near: Mapping[Place, float]) -> dict[Place, float]:
    """Return the scores of turns and their neighbors, from both searches and from their sessions.

    A session at most doubles a turn's score, so a turn without a score gets none from its session. Some of the places
    may lie beyond the end of their session.
    """
    sessions: dict[int, dict[int, float]] = defaultdict(dict)
    for place in {**words, **near}:
        said, meant = words.get(place, 0.0), near.get(place, 0.0)
        session, sequence = place
        scores = sessions[session]
        scores[sequence] = scores.get(sequence, 0.0) + (said + meant)
        shared = said + NEAR_PART * meant
        for distance, to_later, to_earlier in SHARES:
            later, earlier = sequence + distance, sequence - distance
            scores[later] = scores.get(later, 0.0) + to_later * shared
            if earlier >= 0:
                scores[earlier] = scores.get(earlier, 0.0) + to_earlier * shared
    together: dict[Place, float] = {}
    for session, scores in sessions.items():
        bonus = SESSION_SHARE * fmean(sorted(scores.values())[-SESSION_BEST:])
        for sequence, score in scores.items():
            together[session, sequence] = score + (score if score < bonus else bonus)
    return together


def with_moments(turns: Mapping[Place, float], moments: Iterable[tuple[TurnSpan, float]]) -> dict[Place, float]:
    """Return the scores of turns, each with a share of the scores of the moments that cover the turn.

    Args:
        turns: The scores of the turns without moments.
        moments: The turns that each moment covers, and its score.
    """
    places: dict[int, list[int]] = defaultdict(list)
    for session, sequence in sorted(turns):
        places[session].append(sequence)
    together = dict(turns)
    for (session, first, last), score in moments:
        of_session = places.get(session, [])
        for sequence in of_session[bisect_left(of_session, first) : bisect_right(of_session, last)]:
            together[session, sequence] += MOMENT_SHARE * score
    return together
