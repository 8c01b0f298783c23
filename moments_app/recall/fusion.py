"""Making one order out of several: pure functions over scores."""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from heapq import nlargest
from statistics import fmean
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

# A place in a conversation: primary key of the session, sequence of the turn.
Place = tuple[int, int]
# The turns that a moment covers: primary key of the session, sequences of the first and the last turn.
TurnSpan = tuple[int, int, int]

# A distance between turns, and the share of a turn's score that the turn after it and the turn before it get at that
# distance. An answer often has no word of the question; docs/benchmarks.md has the measurements.
SHARES = ((1, 0.5, 0.4), (2, 0.3, 0.2), (3, 0.15, 0.1), (4, 0.08, 0.05))
CANDIDATES = 150  # best results of each search, which are ranked
NEAR_PART = 0.5  # of the shares, for similarity: the vectors of neighbors are alike as it is
SESSION_SHARE, SESSION_BEST = 0.2, 3  # share of the mean of a session's best scores that its turns get
MOMENT_SHARE = 0.2  # share of a moment's score that its turns get


def word_scores(shares: Mapping[K, float], worth: float) -> dict[K, float]:
    """Return scores that grow with how rare the matched words are, and with how much of the query they make up.

    A text that has all of the query's rare words outweighs every similarity. Where the texts have few of them, because
    the query is worded differently, similarity decides.

    Args:
        shares: Of the worth of all words of the query, by text.
        worth: The sum of the inverse document frequencies of the query's words.
    """
    return {key: worth * share**2 for key, share in shares.items()}


def near_scores(similarity: Mapping[K, float], *, unembedded: Collection[K] = ()) -> dict[K, float]:
    """Return how far each text is above the least similar of the best `CANDIDATES`, in standard deviations of these.

    Args:
        similarity: The cosines of the texts that were found by meaning.
        unembedded: Texts without a vector so far. They get the mean, because nothing is known about their meaning.
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


def turn_scores(words: Mapping[Place, float], near: Mapping[Place, float]) -> dict[Place, float]:
    """Return the scores of turns and of the turns around them, from both searches and from their sessions.

    A session at most doubles the score of a turn, so it adds nothing where nothing was found. Some of the places may
    lie beyond the end of their session.
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
    shares: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for (session, first, last), score in moments:
        shares[session].append((first, last, MOMENT_SHARE * score))
    together: dict[Place, float] = {}
    for (session, sequence), score in turns.items():
        covering = [share for first, last, share in shares.get(session, ()) if first <= sequence <= last]
        together[session, sequence] = score + sum(covering)
    return together
