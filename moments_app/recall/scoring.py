"""Weights of a query's words, and scores of the texts that match. Pure functions without database access."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any

from moments_app.recall.request import Span
from moments_app.recall.results import Key, Place, TurnSpan

MAX_TERMS = 32  # maximum words of a query; of a long query, the rarest words are used
MAX_STEMS = 128  # maximum stems per index search; for several hundred, PostgreSQL reads the whole table instead
MAX_READ = 2_000  # maximum texts ranked for one kind; words in more texts only affect the order of results
COUNTED_KINDS = ("fact", "moment", "turn")  # the order of the counts in query results
MAX_UNCOUNTED_RATIO = 0.5  # maximum ratio of uncounted to counted turns; above it, rarity depends on the texts found


def counts_by_kind(numbers: Sequence[Any]) -> dict[str, int]:
    """Return a dict of the counts, which must have the order of `COUNTED_KINDS`."""
    return {kind: int(count or 0) for kind, count in zip(COUNTED_KINDS, numbers, strict=True)}


@dataclass(frozen=True)
class Term:
    word: str  # the word as written in the query, or a known word that may be meant
    stems: tuple[str, ...]  # stems under which the word is indexed; if it is unknown, its likely stems
    counts: dict[str, int]  # number of texts that contain the word, keyed by kind
    factor: float = 1.0  # less than 1 for guessed words and for words with little meaning
    unknown_word: str = ""  # for a guessed word, the query's unknown word; blank if the query contains the word itself
    other_stems: tuple[str, ...] = ()  # other stems that the word may have in texts that are not counted yet
    # whether the word is part of a time; a text from that time need not contain the word
    is_time: bool = False

    @property
    def all_stems(self) -> tuple[str, ...]:
        return self.stems + self.other_stems

    @property
    def query(self) -> str:
        """The word as a `tsquery`. The other stems are ranked together, because separate ones are expensive."""
        together = ["|".join(f"'{stem}'" for stem in self.other_stems)] if self.other_stems else []
        return " | ".join([*(f"'{stem}'" for stem in self.stems), *together])

    @property
    def is_known(self) -> bool:
        """True if a counted text contains the word."""
        return any(self.counts.values())


@dataclass(frozen=True)
class Lookup:
    """The search parameters for one kind of memory: the arguments of a `recall_…` function."""

    rare: list[str]  # a text with any of these stems is a candidate
    joint: list[str]  # a text with all of these stems is a candidate
    with_newest: bool  # the newest texts are also candidates, because no word is rare
    queries: list[str]  # one `tsquery` per word
    weights: list[float]
    average: float | None  # average number of words in a text; if None, rarity is computed from the texts found
    # the score of a text that contains each word once, not counting words for a time; an estimate if rarity is unknown
    max_score: float


@dataclass(frozen=True)
class QueryWords:
    """The words of a query, with their statistics in the texts that a person may search."""

    shards: list[int]  # primary keys of the shards
    # number of texts, and their total length in words, at the last count, keyed by kind
    sizes: dict[str, tuple[int, int]]
    terms: list[Term] = field(default_factory=list)  # in no particular order
    uncounted: int = 0  # approximate number of new turns since the last count
    vector: str = ""  # the query's vector without the part common to the person's turns; blank if there is no vector
    span: Span | None = None  # the span of time mentioned in the query

    def lookup(self, kind: str) -> Lookup:
        counted = self._counted(kind)
        if counted is None:
            return self._uncounted(kind)
        total, length = self.sizes[counted]
        # Words without a count may be new, so they are searched, but they must not displace words with a count.
        rarest = sorted(self.terms, key=lambda term: (not term.counts[counted], term.counts[counted], term.word))
        terms = sorted(rarest[:MAX_TERMS], key=lambda term: term.counts[counted])
        read = accumulate(term.counts[counted] for term in terms)
        rare = [term for term, so_far in zip(terms, read, strict=True) if so_far <= MAX_READ]
        common = terms[len(rare) :]
        finds_none = bool(common) and not any(term.counts[counted] for term in rare)
        return Lookup(
            rare=_stems(rare),
            joint=_joint(common, counted, total) if finds_none else [],
            with_newest=finds_none,
            queries=[term.query for term in terms],
            weights=(weights := [term.factor * rarity(term.counts[counted], total) for term in terms]),
            average=length / total,
            max_score=_max_score(terms, weights),
        )

    def _counted(self, kind: str) -> str | None:
        """Return the kind whose counts to use: `kind`, or if it has no texts, the kind with the most texts.

        Return None if no kind is suitable.
        """
        counted = kind if self.sizes[kind][0] else max(COUNTED_KINDS, key=lambda other: self.sizes[other])
        total, _ = self.sizes[counted]
        return counted if total and (counted != "turn" or self.uncounted <= MAX_UNCOUNTED_RATIO * total) else None

    @property
    def are_turns_counted(self) -> bool:
        return self._counted("turn") is not None

    def _uncounted(self, kind: str) -> Lookup:
        """Return the search parameters to use if too many turns have not been counted yet."""
        terms = sorted(self.terms, key=lambda term: (term.counts[kind], -term.factor))[:MAX_TERMS]
        return Lookup(
            rare=_stems(terms),
            joint=[],
            with_newest=False,
            queries=[term.query for term in terms],
            weights=(factors := [term.factor for term in terms]),
            average=None,
            max_score=_max_score(terms, factors) * rarity(1, self.uncounted + self.sizes[kind][0]),
        )


def rarity(count: int, total: int) -> float:
    """Return BM25's inverse document frequency of a word that occurs in `count` of `total` texts. Never negative."""
    total = max(total, count)
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def _max_score(terms: Sequence[Term], weights: Sequence[float]) -> float:
    """Return the sum of the weights, excluding words for a time if there are other words."""
    return sum(weight for term, weight in zip(terms, weights, strict=True) if not term.is_time) or sum(weights)


def _stems(terms: Iterable[Term]) -> list[str]:
    """Return the stems to search for. Beyond `MAX_STEMS`, leave out the alternative stems of a word."""
    stems: list[str] = []
    for term in terms:
        has_room = len(stems) + len(term.all_stems) <= MAX_STEMS
        stems += term.all_stems if has_room else term.stems
    return stems


def _joint(common: Sequence[Term], kind: str, total: int) -> list[str]:
    """Return the shortest list of common words, rarest first, that only a few texts contain together.

    Return no words if there is no such list. Otherwise, the index would read each word's whole list and return
    arbitrary texts.
    """
    share, stems = 1.0, []
    for term in common:
        share *= term.counts[kind] / max(total, 1)
        stems.append(term.stems[0])
        if len(stems) > 1 and share * total <= MAX_READ:
            return stems
    return []


# --- scores ---

# Neighbors of a turn get a share of its score, because an answer often contains no word of the question. Each tuple has
# the distance, the share for the turn after, and the share for the turn before. See docs/benchmarks.md for the
# measurements.
NEIGHBOR_SHARES = ((1, 0.5, 0.4), (2, 0.3, 0.2), (3, 0.15, 0.1), (4, 0.08, 0.05))
MIN_OF_KIND = 30  # minimum texts of a kind for a scale of its own
CANDIDATES = 150  # number of best results of each search to rank
# If no text has at least this share of the query's words, the matches are probably random.
TRUSTED_SHARE = 0.5
SEMANTIC_NEIGHBOR_FACTOR = 0.5  # factor for `NEIGHBOR_SHARES` in semantic search, where adjacent turns are similar
SESSION_SHARE, SESSION_BEST = 0.2, 3  # share of the mean of a session's best scores, added to its turns
# The share of a score that a moment adds to its turns, a fact to its source turns, and a source turn to its facts.
SOURCE_SHARE = 0.2
TurnScores = dict[int, dict[int, float]]  # by session and sequence number


def word_scores(shares: Mapping[Key, float], max_score: float) -> dict[Key, float]:
    """Return scores that grow with the rarity of the matched words and with their share of the query.

    A text that contains all rare words of the query outranks any similar text. If even the best text contains few of
    these words, the scores are low, so similarity decides.
    """
    trust = min(1.0, max(shares.values(), default=0.0) / TRUSTED_SHARE)
    return {key: trust * max_score * share**2 for key, share in shares.items()}


def semantic_scores(similarity: Mapping[Key, float], *, unembedded: Collection[Key] = ()) -> dict[Key, float]:
    """Return how far each text is above the least similar of the best `CANDIDATES` of its kind, in standard deviations.

    Facts are short, so they are usually more similar to a question than turns. Kinds with few texts are compared with
    all texts. Texts without a vector (`unembedded`) get the mean, because their meaning is unknown.
    """
    if not similarity:
        return {}
    by_kind: dict[str, dict[Key, float]] = defaultdict(dict)
    for key, cosine in similarity.items():
        by_kind[key[0]][key] = cosine
    of_all = _Scale(similarity.values())
    scales = {kind: _Scale(found.values()) if len(found) >= MIN_OF_KIND else of_all for kind, found in by_kind.items()}
    scores: dict[Key, float] = {}
    for kind, found in by_kind.items():
        scores |= scales[kind].scores(found)
    for key in unembedded:
        scale = scales.get(key[0], of_all)
        scores |= scale.scores({key: scale.mean})
    return scores


class _Scale:
    """A scale for scores, based on the similarities of some texts."""

    def __init__(self, similarities: Iterable[float]) -> None:
        nearest = sorted(similarities, reverse=True)[:CANDIDATES]
        self.mean, self._least = fmean(nearest), nearest[-1]
        self._deviation = math.sqrt(fmean([(cosine - self.mean) ** 2 for cosine in nearest]))

    def scores(self, similarity: Mapping[Key, float]) -> dict[Key, float]:
        least, deviation = self._least, self._deviation
        if deviation < 1e-9:
            return dict.fromkeys(similarity, 0.0)
        return {key: (cosine - least) / deviation if cosine > least else 0.0 for key, cosine in similarity.items()}


def turn_scores(
    words: Mapping[Place, float], near: Mapping[Place, float], moments: Collection[tuple[TurnSpan, float]] = ()
) -> TurnScores:
    """Combine the scores of text search, semantic search, sessions and moments into scores of turns and neighbors.

    A session can at most double a turn's score, so a turn without a score gets none from its session. Some places may
    be beyond the end of their session.
    """
    sessions: TurnScores = defaultdict(lambda: defaultdict(float))
    none = dict.fromkeys({**words, **near}, 0.0)
    similar = {**none, **near}
    for place, said in {**none, **words}.items():
        meant = similar[place]
        session, sequence = place
        scores = sessions[session]
        scores[sequence] += said + meant
        shared = said + SEMANTIC_NEIGHBOR_FACTOR * meant
        for distance, to_later, to_earlier in NEIGHBOR_SHARES:
            scores[sequence + distance] += to_later * shared
            if sequence >= distance:
                scores[sequence - distance] += to_earlier * shared
    for scores in sessions.values():
        bonus = SESSION_SHARE * fmean(sorted(scores.values())[-SESSION_BEST:])
        for sequence, score in scores.items():
            scores[sequence] = score + (score if score < bonus else bonus)
    in_order = {session: sorted(sessions[session]) for session in {span[0] for span, _ in moments} & sessions.keys()}
    for (session, first, last), score in moments:
        of_session = in_order.get(session, [])
        for sequence in of_session[bisect_left(of_session, first) : bisect_right(of_session, last)]:
            sessions[session][sequence] += SOURCE_SHARE * score
    return sessions


def share_with_sources(turns: TurnScores, facts: dict[Key, float], sources: Mapping[Key, Sequence[Place]]) -> None:
    """Give each turn a share of its best fact's score, and each fact a share of its best source turn's score.

    Both then rank above facts and turns without such a match.

    Args:
        turns: the scores of turns; changed in place.
        facts: the scores of other kinds; changed in place.
        sources: the source turns of facts, if they have scores.
    """
    of_facts: dict[Place, float] = defaultdict(float)
    for key, places in sources.items():
        for place in places:
            if facts[key] > of_facts[place]:
                of_facts[place] = facts[key]
    for key, places in sources.items():
        facts[key] += SOURCE_SHARE * max([turns[session][sequence] for session, sequence in places])
    for (session, sequence), score in of_facts.items():
        turns[session][sequence] += SOURCE_SHARE * score
