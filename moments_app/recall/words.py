"""The words of a query: how rare each is in what a person may find, and what a mistyped one may have meant."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from django.db import connection
from rapidfuzz import process
from rapidfuzz.distance import OSA

from sessions_app import lexemes

QUERY_CHARS = 20_000  # of a query whose words are looked at
MOST_TERMS = 32  # the rarest words of a long query say what it is about
MOST_READ = 2_000  # texts ranked for one kind; more common words only add to the rank of what rarer ones find
TYPO_FACTOR = 0.7  # of the weight a word has that may have been meant
COUNTED = ("fact", "moment", "turn")  # in the order of the statements below
LIKELIEST = 2  # stems of a word that nothing has, which are ranked each by itself
MEANT = 3  # words at most that a mistyped one may stand for

UNCOUNTED = 0.5  # of the turns that were counted: when more are not, rarity is counted in what a search finds
NEWEST = 300  # turns that are looked through for what a mistyped word may have meant, where so much is not counted

# The person's own words and those of the shards; both by unique indexes. What is counted is seen by row security. The
# sessions that have grown since by `session_grown`, which has no others.
_WORDS_SQL = """
WITH shard AS MATERIALIZED (
    SELECT id FROM moments_app_memorystream
    WHERE stream_type = 'agent' AND agent_id IN ('', %(agent)s) AND user_id IS NULL AND is_active
), seen AS MATERIALIZED (
    SELECT * FROM moments_app_vocabulary WHERE user_id = %(user)s
    UNION ALL SELECT * FROM moments_app_vocabulary WHERE user_id IS NULL AND stream_id IN (SELECT id FROM shard)
), asked AS MATERIALIZED (SELECT unnest(%(stems)s::text[]) AS stem)
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
     ) counted WHERE counted.fact IS NOT NULL),
    (SELECT sum(message_count - counted_message_count) FROM sessions_app_session
     WHERE user_id = %(user)s AND message_count > counted_message_count * 1.25)
"""
_NEAR_SQL = """
SELECT stem, sum(facts)::bigint, sum(moments)::bigint, sum(turns)::bigint FROM ({known}) known
WHERE length(stem) = ANY(%(lengths)s) AND stem !~ '[0-9]'
GROUP BY stem
"""
_COUNTED_SQL = "SELECT stem, facts, moments, turns FROM moments_app_word WHERE vocabulary_id = ANY(%(vocabularies)s)"
_JUST_SAID_SQL = f"""
SELECT stem, 0, 0, 1 FROM (
    SELECT search_vector FROM sessions_app_message
    WHERE user_id = %(user)s AND kind = 'turn' AND role <> 'system' AND retracted_at IS NULL
    ORDER BY created_at DESC, id DESC LIMIT {NEWEST}
) turn, unnest(tsvector_to_array(search_vector)) stem
"""  # noqa: S608 (a number of our own)


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
        """What it is looked for under."""
        return self.stems + self.others

    @property
    def query(self) -> str:
        """As a `tsquery`; the others are ranked together, for each that is ranked by itself costs."""
        together = ["|".join(f"'{stem}'" for stem in self.others)] if self.others else []
        return " | ".join([*(f"'{stem}'" for stem in self.stems), *together])

    @property
    def is_known(self) -> bool:
        """Whether anything has it, as far as was counted."""
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
    """

    rare: list[str]
    joint: list[str]
    with_newest: bool
    queries: list[str]
    weights: list[float]
    average: float | None


@dataclass(frozen=True)
class QueryWords:
    """The words of a query, in what a person may find.

    Args:
        shards: primary keys of the streams that are everybody's and seen here.
        sizes: number and summed length of texts, by kind, as they were counted.
        terms: in no order.
        uncounted: turns that came in since, about.
    """

    shards: list[int]
    sizes: dict[str, tuple[int, int]]
    terms: list[Term] = field(default_factory=list)
    uncounted: int = 0

    def lookup(self, kind: str) -> Lookup:
        """How texts of a kind are searched."""
        counted = self._counted(kind)
        if counted is None:
            return self._uncounted(kind)
        total, length = self.sizes[counted]
        # Words that no count knows may be new, so they are looked for; but they must not crowd out the known ones.
        told = sorted(self.terms, key=lambda term: (not term.counts[counted], term.counts[counted], term.word))
        terms = sorted(told[:MOST_TERMS], key=lambda term: term.counts[counted])
        read = accumulate(term.counts[counted] for term in terms)
        rare = [term for term, so_far in zip(terms, read, strict=True) if so_far <= MOST_READ]
        common = terms[len(rare) :]
        finds_none = bool(common) and not any(term.counts[counted] for term in rare)
        return Lookup(
            rare=[stem for term in rare for stem in term.all_stems],
            joint=_joint(common, counted, total) if finds_none else [],
            with_newest=finds_none,
            queries=[term.query for term in terms],
            weights=[term.factor * rarity(term.counts[counted], total) for term in terms],
            average=length / total,
        )

    def _counted(self, kind: str) -> str | None:
        """The kind whose counts tell how rare a word is in texts of a kind: its own, or before there are any the one of
        which there is most; None where none does.
        """
        told_by = kind if self.sizes[kind][0] else max(COUNTED, key=lambda other: self.sizes[other])
        total, _ = self.sizes[told_by]
        return told_by if total and (told_by != "turn" or self.uncounted <= UNCOUNTED * total) else None

    @property
    def are_turns_counted(self) -> bool:
        """Whether most turns are counted."""
        return self._counted("turn") is not None

    def _uncounted(self, kind: str) -> Lookup:
        """How texts are searched of which more are new than were counted."""
        terms = sorted(self.terms, key=lambda term: (term.counts[kind], -term.factor))[:MOST_TERMS]
        return Lookup(
            rare=[stem for term in terms for stem in term.all_stems],
            joint=[],
            with_newest=False,
            queries=[term.query for term in terms],
            weights=[term.factor for term in terms],
            average=None,
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
        stems.append(term.stems[0])
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
    asked = lexemes.words_of_query(text[:QUERY_CHARS])
    stems = [stem for word in asked for stem in word.stems]
    with connection.cursor() as cursor:
        cursor.execute(_WORDS_SQL, {"user": user_id, "agent": agent_id, "stems": stems})
        [(shards, vocabularies, sizes, found, uncounted)] = cursor.fetchall()
    counts = {stem: _counts(numbers) for stem, *numbers in json.loads(found)}
    terms = [_term(word, counts, is_counted=not uncounted) for word in asked]
    counted = {kind: (int(number or 0), int(length or 0)) for kind, (number, length) in json.loads(sizes).items()}
    words = QueryWords(shards, counted, terms, int(uncounted or 0))
    unknown = [term for term in terms if not term.is_known and _may_be_mistyped(term.word)]
    if not unknown:
        return words
    known = _COUNTED_SQL if words.are_turns_counted else f"{_COUNTED_SQL} UNION ALL {_JUST_SAID_SQL}"
    near = _known_near(unknown, known, {"user": user_id, "vocabularies": vocabularies})
    return replace(words, terms=[*terms, *_meant(near, unknown, terms)])


def _counts(numbers: Sequence[Any]) -> dict[str, int]:
    return {kind: int(count or 0) for kind, count in zip(COUNTED, numbers, strict=True)}


def _term(word: lexemes.QueryWord, counts: Mapping[str, dict[str, int]], *, is_counted: bool) -> Term:
    """A word with what is known of it. A text may have several of its stems, so the commonest tells.

    What nothing was counted under is left out when everything was counted, about.
    """
    known = sorted((stem for stem in word.stems if stem in counts), key=lambda stem: -sum(counts[stem].values()))
    together = {kind: max((counts[stem][kind] for stem in known), default=0) for kind in COUNTED}
    stems = tuple(known) or word.stems[:LIKELIEST]
    others = () if known and is_counted else tuple(stem for stem in word.stems if stem not in stems)
    return Term(word.word, stems, together, word.factor, others=others)


def _may_be_mistyped(word: str) -> bool:
    return len(word) >= 4 and word.isalpha()


def _most_edits(stem: str) -> int:
    """How far a word may be from what was meant: insertions, deletions, changes and swaps of neighbours."""
    return 1 if len(stem) < 8 else 2


def _known_near(unknown: Sequence[Term], known: str, parameters: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """All stems about as long as those of some words, with their counts."""
    lengths = {len(stem) + edits for term in unknown for stem in term.all_stems for edits in _edits(_bare(stem))}
    with connection.cursor() as cursor:
        cursor.execute(_NEAR_SQL.format(known=known), {**parameters, "lengths": list(lengths)})
        return {stem: numbers for stem, *numbers in cursor}


def _meant(known: Mapping[str, Sequence[int]], unknown: Sequence[Term], said: Sequence[Term]) -> list[Term]:
    """The nearest known words of those that nothing has; of several equally near ones the most frequent.

    What a word may be indexed under is compared with what is known of the same language. One that was not counted, but
    has just been said, is no typo.
    """
    told = {stem for term in said if term.is_known for stem in term.stems}
    by_language: dict[str, list[str]] = defaultdict(list)
    for stem in known:
        by_language[_language(stem)].append(stem)
    return [
        Term(_bare(stem), (stem,), _counts(known[stem]), TYPO_FACTOR, term.word)
        for term in unknown
        if known.keys().isdisjoint(term.all_stems)
        for stem in _nearest(term, by_language, known)
        if stem not in told
    ]


def _edits(stem: str) -> range:
    return range(-_most_edits(stem), _most_edits(stem) + 1)


def _nearest(term: Term, by_language: Mapping[str, list[str]], known: Mapping[str, Sequence[int]]) -> list[str]:
    near: dict[str, float] = {}
    for stem in term.all_stems:
        edits = _most_edits(_bare(stem))
        same = by_language.get(_language(stem), [])
        for found, distance, _ in process.extract(stem, same, scorer=OSA.distance, limit=None, score_cutoff=edits):
            near[found] = min(distance, near.get(found, distance))
    least = min(near.values(), default=0)
    nearest = [stem for stem, distance in near.items() if distance == least]
    return sorted(nearest, key=lambda stem: (-sum(known[stem]), stem))[:MEANT]


def _language(stem: str) -> str:
    return stem.partition(":")[0] if ":" in stem else ""


def _bare(stem: str) -> str:
    """A stem without the mark of its language."""
    return stem.rpartition(":")[2]
