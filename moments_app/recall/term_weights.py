"""The words of a query, their rarity, and the search parameters derived from them: pure functions over counts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from moments_app.recall.request import Span

MAX_TERMS = 32  # maximum words of a query; the rarest words carry the meaning of a long query
MAX_STEMS = 128  # maximum stems per index search; for several hundred, PostgreSQL reads the whole table instead
MOST_READ = 2_000  # maximum texts ranked for one kind; more common words only rank texts that rarer words find
COUNTED = ("fact", "moment", "turn")  # the order of the counts in query results
UNCOUNTED = 0.5  # share of the counted turns; with more uncounted turns, rarity is computed from the texts found


def counts_by_kind(numbers: Sequence[Any]) -> dict[str, int]:
    """Return the counts by kind. They are given in the order of `COUNTED`."""
    return {kind: int(count or 0) for kind, count in zip(COUNTED, numbers, strict=True)}


@dataclass(frozen=True)
class Term:
    """A word to search for.

    Args:
        word: the word as it was written, or the known word that may be meant.
        stems: the stems that it is indexed under, if known; otherwise its likely stems.
        counts: the number of texts that contain it, by kind.
        factor: the factor of its weight: less than 1 for a guessed word or for one with little meaning.
        said: the unknown word of the query that this known word was guessed for; blank: the query contains the word.
        others: stems that it may have in texts that are not counted yet.
        is_time: whether it names the time that the query asks about. A text from that time need not contain it.
    """

    word: str
    stems: tuple[str, ...]
    counts: dict[str, int]
    factor: float = 1.0
    said: str = ""
    others: tuple[str, ...] = ()
    is_time: bool = False

    @property
    def all_stems(self) -> tuple[str, ...]:
        return self.stems + self.others

    @property
    def query(self) -> str:
        """The word as a `tsquery`.

        The other stems are ranked together, because each separately ranked stem is expensive.
        """
        together = ["|".join(f"'{stem}'" for stem in self.others)] if self.others else []
        return " | ".join([*(f"'{stem}'" for stem in self.stems), *together])

    @property
    def is_known(self) -> bool:
        """True if a counted text contains the word."""
        return any(self.counts.values())


@dataclass(frozen=True)
class Lookup:
    """The search parameters for one kind of memory: the arguments of a `recall_…` function.

    Args:
        rare: stems; a text with any of them is a candidate.
        joint: stems; a text with all of them is a candidate.
        with_newest: whether the newest texts are candidates too, because no word is rare.
        queries, weights: every word, with its weight.
        average: the average number of words in a text; None: unknown, so rarity is computed from the texts found.
        worth: the score of a text that has every word once, except words of a time; an estimate if rarity is unknown.
    """

    rare: list[str]
    joint: list[str]
    with_newest: bool
    queries: list[str]
    weights: list[float]
    average: float | None
    worth: float


@dataclass(frozen=True)
class QueryWords:
    """The words of a query, with their statistics in the texts that a person may search.

    Args:
        shards: primary keys of the shards that are searched.
        sizes: the number of texts and their total length in words, by kind, at the last count.
        terms: the words, in no particular order.
        uncounted: the approximate number of turns since the last count.
        vector: the query's vector, adjusted for comparison. Blank if the query has no vector.
        span: the time that the query names.
    """

    shards: list[int]
    sizes: dict[str, tuple[int, int]]
    terms: list[Term] = field(default_factory=list)
    uncounted: int = 0
    vector: str = ""
    span: Span | None = None

    def lookup(self, kind: str) -> Lookup:
        counted = self._counted(kind)
        if counted is None:
            return self._uncounted(kind)
        total, length = self.sizes[counted]
        # Words without a count may be new, so they are searched, but they must not displace words with a count.
        rarest = sorted(self.terms, key=lambda term: (not term.counts[counted], term.counts[counted], term.word))
        terms = sorted(rarest[:MAX_TERMS], key=lambda term: term.counts[counted])
        read = accumulate(term.counts[counted] for term in terms)
        rare = [term for term, so_far in zip(terms, read, strict=True) if so_far <= MOST_READ]
        common = terms[len(rare) :]
        finds_none = bool(common) and not any(term.counts[counted] for term in rare)
        return Lookup(
            rare=_stems(rare),
            joint=_joint(common, counted, total) if finds_none else [],
            with_newest=finds_none,
            queries=[term.query for term in terms],
            weights=(weights := [term.factor * rarity(term.counts[counted], total) for term in terms]),
            average=length / total,
            worth=_worth(terms, weights),
        )

    def _counted(self, kind: str) -> str | None:
        """Return the kind whose counts are used to estimate rarity in texts of a kind; None if there is none.

        That is the kind itself. While the kind has no texts, it is the kind with the most texts.
        """
        counted = kind if self.sizes[kind][0] else max(COUNTED, key=lambda other: self.sizes[other])
        total, _ = self.sizes[counted]
        return counted if total and (counted != "turn" or self.uncounted <= UNCOUNTED * total) else None

    @property
    def are_turns_counted(self) -> bool:
        """True if most turns are counted."""
        return self._counted("turn") is not None

    def _uncounted(self, kind: str) -> Lookup:
        """Return the search parameters when too many turns are uncounted."""
        terms = sorted(self.terms, key=lambda term: (term.counts[kind], -term.factor))[:MAX_TERMS]
        return Lookup(
            rare=_stems(terms),
            joint=[],
            with_newest=False,
            queries=[term.query for term in terms],
            weights=(factors := [term.factor for term in terms]),
            average=None,
            worth=_worth(terms, factors) * rarity(1, self.uncounted + self.sizes[kind][0]),
        )


def rarity(count: int, total: int) -> float:
    """Return BM25's inverse document frequency of a word that `count` of `total` texts contain; never negative."""
    total = max(total, count)
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def _worth(terms: Sequence[Term], weights: Sequence[float]) -> float:
    """Return the sum of the weights, without words of a time if there are others."""
    return sum(weight for term, weight in zip(terms, weights, strict=True) if not term.is_time) or sum(weights)


def _stems(terms: Iterable[Term]) -> list[str]:
    """Return the stems to search for. Beyond `MAX_STEMS`, leave out the alternative stems of a word."""
    stems: list[str] = []
    for term in terms:
        has_room = len(stems) + len(term.all_stems) <= MAX_STEMS
        stems += term.all_stems if has_room else term.stems
    return stems


def _joint(common: Sequence[Term], kind: str, total: int) -> list[str]:
    """Return just enough of the rarest common words that few texts contain all of them.

    Return none if even the texts with all of them are many: the index would read each word's whole list and return
    arbitrary texts.
    """
    share, stems = 1.0, []
    for term in common:
        share *= term.counts[kind] / max(total, 1)
        stems.append(term.stems[0])
        if len(stems) > 1 and share * total <= MOST_READ:
            return stems
    return []
