"""The words of a query: how rare each is in what a person may find, and what a mistyped one may have meant."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from django.db import connection
from rapidfuzz import process
from rapidfuzz.distance import OSA

QUERY_CHARS = 20_000  # of a query whose words are looked at
MOST_TERMS = 32  # the rarest words of a long query say what it is about
MOST_READ = 2_000  # texts ranked for one kind; more common words only add to the rank of what rarer ones find
TYPO_FACTOR = 0.7  # of the weight a word has that may have been meant
COUNTED = ("fact", "moment", "turn")  # in the order of the statements below
MEANT = 3  # words at most that a mistyped one may stand for

# The person's own words and those of the shards; both by unique indexes. What is counted is seen by row security.
_WORDS_SQL = """
WITH shard AS MATERIALIZED (
    SELECT id FROM moments_app_memorystream
    WHERE stream_type = 'agent' AND agent_id IN ('', %(agent)s) AND user_id IS NULL AND is_active
), seen AS MATERIALIZED (
    SELECT * FROM moments_app_vocabulary WHERE user_id = %(user)s
    UNION ALL SELECT * FROM moments_app_vocabulary WHERE user_id IS NULL AND stream_id IN (SELECT id FROM shard)
), asked AS MATERIALIZED (
    SELECT unnest(tsvector_to_array(to_tsvector('english', left(%(text)s, %(chars)s)))) AS stem
)
SELECT
    ARRAY(SELECT id FROM shard), ARRAY(SELECT id FROM seen),
    (SELECT jsonb_build_object(
        'fact', ARRAY[sum(fact_count), sum(fact_words)],
        'moment', ARRAY[sum(moment_count), sum(moment_words)],
        'turn', ARRAY[sum(turn_count), sum(turn_words)]
    ) FROM seen),
    (SELECT COALESCE(jsonb_agg(jsonb_build_array(stem, counted.fact, counted.moment, counted.turn)), '[]')
     FROM asked, LATERAL (
        SELECT sum(facts) AS fact, sum(moments) AS moment, sum(turns) AS turn FROM moments_app_word
        WHERE vocabulary_id IN (SELECT id FROM seen) AND moments_app_word.stem = asked.stem
     ) counted)
"""
_NEAR_SQL = """
SELECT stem, sum(facts)::bigint, sum(moments)::bigint, sum(turns)::bigint FROM moments_app_word
WHERE vocabulary_id = ANY(%(vocabularies)s) AND length(stem) BETWEEN %(least)s AND %(most)s AND stem !~ '[0-9]'
GROUP BY stem
"""


@dataclass(frozen=True)
class Term:
    """A word to look for.

    Args:
        stem: as PostgreSQL's dictionary makes it.
        counts: texts that have it, by kind.
        factor: of its weight; less than 1 when it may have been meant, but wasn't said.
        said: the word that nothing has, by which it may have been meant; blank: it was said itself.
    """

    stem: str
    counts: dict[str, int]
    factor: float = 1.0
    said: str = ""

    @property
    def query(self) -> str:
        """As a `tsquery`."""
        return "'" + self.stem.replace("\\", "\\\\").replace("'", "''") + "'"


@dataclass(frozen=True)
class Lookup:
    """What one kind of memory is searched for: the arguments of a `recall_…` function.

    Args:
        rare: stems any of which makes a text a candidate.
        joint: stems that a candidate has all of.
        with_newest: the newest texts are candidates too, as no word is rare.
        queries, weights: every word, with its weight.
        average: words in a text.
    """

    rare: list[str]
    joint: list[str]
    with_newest: bool
    queries: list[str]
    weights: list[float]
    average: float


@dataclass(frozen=True)
class QueryWords:
    """The words of a query, in what a person may find.

    Args:
        shards: primary keys of the streams that are everybody's and seen here.
        sizes: number and summed length of texts, by kind.
        terms: in no order.
    """

    shards: list[int]
    sizes: dict[str, tuple[int, int]]
    terms: list[Term] = field(default_factory=list)

    def lookup(self, kind: str) -> Lookup:
        """How texts of a kind are searched."""
        total, length = self.sizes[kind]
        # Words that no count knows may be new, so they are looked for; but they must not crowd out the known ones.
        told = sorted(self.terms, key=lambda term: (not term.counts[kind], term.counts[kind], term.stem))[:MOST_TERMS]
        terms = sorted(told, key=lambda term: term.counts[kind])
        read = accumulate(term.counts[kind] for term in terms)
        rare = [term for term, so_far in zip(terms, read, strict=True) if so_far <= MOST_READ]
        common = terms[len(rare) :]
        finds_none = bool(common) and not any(term.counts[kind] for term in rare)
        return Lookup(
            rare=[term.stem for term in rare],
            joint=_joint(common, kind, total) if finds_none else [],
            with_newest=finds_none,
            queries=[term.query for term in terms],
            weights=[term.factor * rarity(term.counts[kind], total) for term in terms],
            average=length / total if total else 1.0,
        )


def rarity(count: int, total: int) -> float:
    """BM25's inverse document frequency of a word that `count` of `total` texts have; never negative."""
    total = max(total, count)
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def _joint(common: Sequence[Term], kind: str, total: int) -> list[str]:
    """As many of the rarest common words as it takes for the texts with all of them to be few; none where all of them
    don't make it few: the index would read each word's whole list for texts that are picked at random.
    """
    share, stems = 1.0, []
    for term in common:
        share *= term.counts[kind] / max(total, 1)
        stems.append(term.stem)
        if len(stems) > 1 and share * total <= MOST_READ:
            return stems
    return []


def query_words(user_id: int, agent_id: str, text: str) -> QueryWords:
    """Reads what is known of a query's words; two statements at most.

    Args:
        user_id: primary key of the person who asks.
        agent_id: whose shards are seen; blank: only those of every agent.
        text: the query.
    """
    parameters: dict[str, int | str] = {"user": user_id, "agent": agent_id, "text": text, "chars": QUERY_CHARS}
    with connection.cursor() as cursor:
        cursor.execute(_WORDS_SQL, parameters)
        [(shards, vocabularies, sizes, asked)] = cursor.fetchall()
    terms = [_term(row) for row in json.loads(asked)]
    counted = {kind: (int(number or 0), int(length or 0)) for kind, (number, length) in json.loads(sizes).items()}
    words = QueryWords(shards, counted, terms)
    unknown = [term.stem for term in terms if not any(term.counts.values()) and _may_be_mistyped(term.stem)]
    meant = _meant(vocabularies, unknown, terms) if unknown and vocabularies else []
    return replace(words, terms=[*terms, *meant])


def _term(row: Sequence[Any], factor: float = 1.0) -> Term:
    stem, *counts = row
    return Term(stem, {kind: int(count or 0) for kind, count in zip(COUNTED, counts, strict=True)}, factor)


def _may_be_mistyped(stem: str) -> bool:
    return len(stem) >= 4 and stem.isalpha()


def _most_edits(stem: str) -> int:
    """How far a word may be from what was meant: insertions, deletions, changes and swaps of neighbours."""
    return 1 if len(stem) < 8 else 2


def _meant(vocabularies: list[int], unknown: list[str], said: Sequence[Term]) -> list[Term]:
    """The nearest known words of those that nothing has; of several equally near ones the most frequent."""
    lengths = [(len(stem) - _most_edits(stem), len(stem) + _most_edits(stem)) for stem in unknown]
    near = {"least": min(least for least, _ in lengths), "most": max(most for _, most in lengths)}
    with connection.cursor() as cursor:
        cursor.execute(_NEAR_SQL, {"vocabularies": vocabularies, **near})
        known = [_term(row, TYPO_FACTOR) for row in cursor]
    meant = {term.stem: replace(term, said=stem) for stem in unknown for term in _nearest(stem, known)}
    return [term for found, term in meant.items() if found not in {one.stem for one in said}]


def _nearest(stem: str, known: Sequence[Term]) -> list[Term]:
    edits = _most_edits(stem)
    near = process.extract(stem, [term.stem for term in known], scorer=OSA.distance, limit=None, score_cutoff=edits)
    least = min((distance for _, distance, _ in near), default=0)
    nearest = [known[position] for _, distance, position in near if distance == least]
    return sorted(nearest, key=lambda term: (-sum(term.counts.values()), term.stem))[:MEANT]
