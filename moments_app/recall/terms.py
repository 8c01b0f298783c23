"""The words of a query, with how rare each is, and how texts are searched by them: pure functions over counts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

MOST_TERMS = 32  # the rarest words of a long query say what it is about
MOST_STEMS = 128  # per index search; for several hundred, PostgreSQL reads the whole table instead
MOST_READ = 2_000  # texts ranked for one kind; more common words only add to the rank of what rarer ones find
COUNTED = ("fact", "moment", "turn")  # in the order in which statements give the counts
UNCOUNTED = 0.5  # of the turns that were counted: when more are not, rarity is counted in what a search finds


def counts_by_kind(numbers: Sequence[Any]) -> dict[str, int]:
    """Return counts in the order of `COUNTED` by their kind."""
    return {kind: int(count or 0) for kind, count in zip(COUNTED, numbers, strict=True)}


@dataclass(frozen=True)
class Term:
    """A word to look for.

    Args:
        word: as it was said, or as it is known.
        stems: what it is indexed under, as far as that is known; else what it may be.
        counts: texts that have it, by kind.
        factor: of its weight; less than 1 when it may have been meant, but wasn't said, or says little.
        said: the word that nothing has, by which it may have been meant; blank: it was said itself.
        others: what it may be indexed under in what was not counted yet.
    """

    word: str
    stems: tuple[str, ...]
    counts: dict[str, int]
    factor: float = 1.0
    said: str = ""
    others: tuple[str, ...] = ()

    @property
    def all_stems(self) -> tuple[str, ...]:
        """Everything that it is looked for under."""
        return self.stems + self.others

    @property
    def query(self) -> str:
        """The word as a `tsquery`; the others are ranked together, for each that is ranked by itself costs."""
        together = ["|".join(f"'{stem}'" for stem in self.others)] if self.others else []
        return " | ".join([*(f"'{stem}'" for stem in self.stems), *together])

    @property
    def is_known(self) -> bool:
        """Something has it, as far as was counted."""
        return any(self.counts.values())


@dataclass(frozen=True)
class Lookup:
    """What one kind of memory is searched for: the arguments of a `recall_…` function.

    Args:
        rare: stems any of which makes a text a candidate.
        joint: stems that a candidate has all of.
        with_newest: the newest texts are candidates too, as no word is rare.
        queries, weights: every word, with its weight.
        average: words in a text; None: unknown, and how rare a word is must be counted in what is found.
        worth: the score of a text that has every word once; an estimate where rarity is not known yet.
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
    """The words of a query, in what a person may find.

    Args:
        shards: primary keys of the streams that are everybody's and seen here.
        sizes: number and summed length of texts, by kind, as they were counted.
        terms: in no order.
        uncounted: turns that came in since, about.
        vector: the query's vector, adjusted for comparison. Blank if the query has no vector.
    """

    shards: list[int]
    sizes: dict[str, tuple[int, int]]
    terms: list[Term] = field(default_factory=list)
    uncounted: int = 0
    vector: str = ""

    def lookup(self, kind: str) -> Lookup:
        """Return how texts of a kind are searched."""
        counted = self._counted(kind)
        if counted is None:
            return self._uncounted(kind)
        total, length = self.sizes[counted]
        # Words that no count knows may be new, so they are looked for; but they must not crowd out the known ones.
        rarest = sorted(self.terms, key=lambda term: (not term.counts[counted], term.counts[counted], term.word))
        terms = sorted(rarest[:MOST_TERMS], key=lambda term: term.counts[counted])
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
            worth=sum(weights),
        )

    def _counted(self, kind: str) -> str | None:
        """Return the kind whose counts tell how rare a word is in texts of a kind; None where none does.

        That is the kind itself, or as long as it has no texts the kind with the most.
        """
        counted = kind if self.sizes[kind][0] else max(COUNTED, key=lambda other: self.sizes[other])
        total, _ = self.sizes[counted]
        return counted if total and (counted != "turn" or self.uncounted <= UNCOUNTED * total) else None

    @property
    def are_turns_counted(self) -> bool:
        """Most turns are counted."""
        return self._counted("turn") is not None

    def _uncounted(self, kind: str) -> Lookup:
        """Return how texts are searched when more of them are new than were counted."""
        terms = sorted(self.terms, key=lambda term: (term.counts[kind], -term.factor))[:MOST_TERMS]
        return Lookup(
            rare=_stems(terms),
            joint=[],
            with_newest=False,
            queries=[term.query for term in terms],
            weights=(factors := [term.factor for term in terms]),
            average=None,
            worth=sum(factors) * rarity(1, self.uncounted + self.sizes[kind][0]),
        )


def rarity(count: int, total: int) -> float:
    """Return BM25's inverse document frequency of a word that `count` of `total` texts have; never negative."""
    total = max(total, count)
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def _stems(terms: Iterable[Term]) -> list[str]:
    """Return the stems to search for. Beyond `MOST_STEMS`, leave out the alternative stems of a word."""
    stems: list[str] = []
    for term in terms:
        has_room = len(stems) + len(term.all_stems) <= MOST_STEMS
        stems += term.all_stems if has_room else term.stems
    return stems


def _joint(common: Sequence[Term], kind: str, total: int) -> list[str]:
    """Return as many of the rarest common words as it takes for the texts with all of them to be few.

    None where even all of them leave many: the index would read each word's whole list for texts picked at random.
    """
    share, stems = 1.0, []
    for term in common:
        share *= term.counts[kind] / max(total, 1)
        stems.append(term.stems[0])
        if len(stems) > 1 and share * total <= MOST_READ:
            return stems
    return []
