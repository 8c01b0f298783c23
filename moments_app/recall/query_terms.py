"""Look up a query's words in the texts that a person may search, guess the meaning of unknown words, and adjust the
query's vector.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.utils import timezone

from moments_app.recall.request import MAX_WORDS, Vector, span_in
from moments_app.recall.scoring import COUNTED_KINDS, QueryWords, Term, counts_by_kind
from sessions_app import lexemes
from sessions_app.database.sql import array_of, array_of_texts, prepared_cursor
from sessions_app.models import UserProfile

MAX_LIKELY_STEMS = 2  # maximum stems of an unknown word to rank separately
SAMPLED_TURNS = 200  # number of turns whose mean vector is subtracted

# Uses unique indexes to read the word counts of the person and of the shards. Row security hides other vocabularies.
# Uses the partial index `session_grown` to read the sessions that have grown since the words were counted.
_WORDS_SQL = """
WITH shard AS MATERIALIZED (
    SELECT id FROM moments_app_memorystream
    WHERE stream_type = 'agent' AND application_id = %(application)s AND agent_id IN ('', %(agent)s) AND is_active
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
     WHERE user_id = %(user)s AND message_count > counted_message_count * 1.25),
    {distinct}
"""
# Names, tone and other things that a person's turns have in common don't distinguish the turns. So half of the turns'
# mean vector is subtracted from the query's vector. The SQL computes twice this vector, because only the direction
# matters. It uses an index by person.
_DISTINCT_SQL = """(
    SELECT COALESCE(%(query)s::halfvec + %(query)s::halfvec - avg(vector), %(query)s)::text FROM (
        SELECT vector FROM moments_app_turnembedding
        WHERE user_id = %(user)s AND model_id = %(model)s AND vector IS NOT NULL LIMIT %(sample)s
    ) turn
)"""


def query_words(user: UserProfile, agent_id: str, text: str, vector: Vector | None = None) -> QueryWords:
    """Return the statistics of up to `MAX_WORDS` words of a query, with at most two round trips to the database.

    If `agent_id` is blank, only shards that every agent uses are searched.
    """
    asked = lexemes.words_of_query(text, MAX_WORDS)
    stems = [stem for word in asked for stem in word.stems]
    whose = {"user": user.pk, "application": user.application_id, "agent": agent_id}
    parameters: dict[str, Any] = {**whose, "stems": array_of_texts(stems)}
    if vector:
        parameters |= {"query": vector.text, "model": vector.model, "sample": SAMPLED_TURNS}
    with prepared_cursor() as cursor:
        cursor.execute(_WORDS_SQL.format(distinct=_DISTINCT_SQL if vector else "''"), parameters)
        [(shards, vocabularies, sizes, found, uncounted, distinct)] = cursor.fetchall()
    counts = {stem: counts_by_kind(numbers) for stem, *numbers in json.loads(found)}
    span = span_in(text, timezone.now().astimezone(user.zone))
    times = span.words if span else frozenset[str]()
    terms = [_term(word, counts, is_counted=not uncounted, is_time=word.word in times) for word in asked]
    counted = {kind: (int(number or 0), int(length or 0)) for kind, (number, length) in json.loads(sizes).items()}
    words = QueryWords(shards, counted, terms, int(uncounted or 0), distinct, span)
    guesses = guessed_terms(terms, user_id=user.pk, vocabularies=vocabularies, is_counted=words.are_turns_counted)
    return replace(words, terms=[*terms, *guesses])


def _term(word: lexemes.QueryWord, counts: Mapping[str, dict[str, int]], *, is_counted: bool, is_time: bool) -> Term:
    """Return a word with its statistics. A text may contain several of the stems, so use the highest count."""
    known = sorted((stem for stem in word.stems if stem in counts), key=lambda stem: -sum(counts[stem].values()))
    together = {kind: max((counts[stem][kind] for stem in known), default=0) for kind in COUNTED_KINDS}
    stems = tuple(known) or word.stems[:MAX_LIKELY_STEMS]
    # If nearly all texts are counted, leave out stems without a count.
    others = () if known and is_counted else tuple(stem for stem in word.stems if stem not in stems)
    return Term(word.word, stems, together, word.factor, other_stems=others, is_time=is_time)


# --- words that occur in no text ---
#
# Such a word may be mistyped. In languages that write compounds as one word, it may also be a part of longer known
# words, or a compound of shorter ones: "Termin" also finds "Zahnarzttermin". There is no word list: the words in the
# person's texts are the known words. The first letter must match, because nearly all typos keep it. Without this rule,
# many correct words would match other words, as "Rechnung" would match "Zeichnung".

MAX_UNKNOWN = 16  # maximum words of a query that are checked for typos and compounds
GUESS_FACTOR = 0.7  # weight of a guessed word, relative to a word of the query
MAX_GUESSES = 3  # maximum known words for a mistyped word
MAX_COMPOUNDS = 8  # maximum compounds, or parts of a compound, for a word
NEWEST_TURNS = 300  # number of newest turns to search for similar words while most turns are not counted

# The cheapest and most selective conditions come first.
_SIMILAR_SQL = """
SELECT stem, sum(facts)::bigint, sum(moments)::bigint, sum(turns)::bigint FROM ({known}) known
WHERE (
    left(split_part(stem, ':', -1), 1) || length(stem) = ANY(%(typos)s::text[]) OR stem = ANY(%(parts)s::text[])
    OR stem LIKE ANY(%(compounds)s::text[])
) AND stem !~ '[0-9]' GROUP BY stem
"""
_COUNTED_SQL = """
SELECT stem, facts, moments, turns FROM moments_app_word WHERE vocabulary_id = ANY(%(vocabularies)s::bigint[])
"""
_NEWEST_TURNS_SQL = f"""
SELECT stem, 0, 0, 1 FROM (
    SELECT search_vector FROM sessions_app_message
    WHERE user_id = %(user)s AND kind = 'turn' AND role <> 'system' AND retracted_at IS NULL
    ORDER BY created_at DESC, id DESC LIMIT {NEWEST_TURNS}
) turn, unnest(tsvector_to_array(search_vector)) stem
"""  # noqa: S608 (a number of our own)
MAX_EDITS = 2
LONG_WORD = 8  # minimum letters of a word in which two edits are tolerated
COMPOUNDING = ("da", "de", "fi", "hu", "nl", "no", "sv")
# Minimum letters of a compound's last part, which carries the meaning, and of its first part.
MIN_LAST, MIN_FIRST = 4, 5
MIN_REST = 3  # minimum letters of the rest of the compound


def guessed_terms(terms: Sequence[Term], *, user_id: int, vocabularies: Sequence[int], is_counted: bool) -> list[Term]:
    """Return the known words that unknown words among `terms` may stand for. Runs at most one query.

    If most turns are not counted, the newest turns are searched too.
    """
    unknown = [term for term in terms if not term.is_known and not term.is_time and _may_be_mistyped(term.word)]
    unknown = unknown[:MAX_UNKNOWN]
    if not unknown:
        return []
    known = _COUNTED_SQL if is_counted else f"{_COUNTED_SQL} UNION ALL {_NEWEST_TURNS_SQL}"
    near = _similar_stems(unknown, known, {"user": user_id, "vocabularies": array_of(vocabularies)})
    return _guesses(near, unknown, terms)


def _may_be_mistyped(word: str) -> bool:
    return len(word) >= 4 and word.isalpha()


def _similar_stems(unknown: Sequence[Term], known: str, parameters: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """Return the counts of known stems that may be similar to an unknown word, or may be its compounds or parts."""
    stems = {stem for term in unknown for stem in term.all_stems}
    wanted = {"typos": _typo_keys(stems), "parts": compound_parts(stems), "compounds": compound_patterns(stems)}
    with prepared_cursor() as cursor:
        cursor.execute(
            _SIMILAR_SQL.format(known=known),
            {**parameters, **{name: array_of_texts(values) for name, values in wanted.items()}},
        )
        return {stem: numbers for stem, *numbers in cursor.fetchall()}


def _typo_keys(stems: Iterable[str]) -> set[str]:
    """Return keys for each stem: its first letter, followed by each length that the correct word may have."""
    return {
        f"{_start(stem)[-1]}{len(stem) + edits}"
        for stem in stems
        for edits in range(-tolerated_edits(stem), tolerated_edits(stem) + 1)
    }


def _start(stem: str) -> str:
    """Return the language prefix and the first letter of a stem."""
    _language, bare = lexemes.split_stem(stem)
    return stem.removesuffix(bare[1:])


def tolerated_edits(stem: str) -> int:
    _language, bare = lexemes.split_stem(stem)
    return MAX_EDITS if len(bare) >= LONG_WORD else 1


def _guesses(known: Mapping[str, Sequence[int]], unknown: Sequence[Term], said: Sequence[Term]) -> list[Term]:
    """For each unknown word, return the nearest known words of its language, followed by its compounds and parts."""
    query_stems = {stem for term in said if term.is_known for stem in term.stems}
    by_language: dict[str, list[str]] = defaultdict(list)
    by_start: dict[str, list[str]] = defaultdict(list)
    for stem in known:
        by_language[lexemes.split_stem(stem)[0]].append(stem)
        by_start[_start(stem)].append(stem)
    return [
        Term(lexemes.split_stem(stem)[1], (stem,), counts_by_kind(known[stem]), GUESS_FACTOR, term.word)
        for term in unknown
        if known.keys().isdisjoint(term.all_stems)
        for stem in dict.fromkeys([*_nearest(term, by_start, known), *_compounds(term, by_language, known)])
        if stem not in query_stems
    ]


def _compounds(term: Term, by_language: Mapping[str, list[str]], known: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the compounds that contain the word, and the parts of the word.

    Those that share the most letters come first.
    """
    shared = compound_matches(by_language, term.all_stems)
    return sorted(shared, key=lambda stem: (-shared[stem], -sum(known[stem]), stem))[:MAX_COMPOUNDS]


def _nearest(term: Term, by_start: Mapping[str, list[str]], known: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the words of the same language and first letter with the smallest edit distance, most frequent first."""
    from rapidfuzz import process  # imported here because most commands never search
    from rapidfuzz.distance import OSA

    near: dict[str, float] = {}
    for stem in term.all_stems:
        same, edits = by_start.get(_start(stem), ()), tolerated_edits(stem)
        for found, distance, _ in process.extract(stem, same, scorer=OSA.distance, limit=None, score_cutoff=edits):
            near[found] = min(distance, near.get(found, distance))
    least = min(near.values(), default=0)
    nearest = [stem for stem, distance in near.items() if distance == least]
    return sorted(nearest, key=lambda stem: (-sum(known[stem]), stem))[:MAX_GUESSES]


# --- compounds ---


def compound_patterns(stems: Iterable[str]) -> list[str]:
    """Return LIKE patterns of compounds that begin or end with one of these stems.

    The patterns also match words that are too short to be compounds.
    """
    found = _in_compounding_languages(stems)
    return [like for language, bare in found for like in (f"{language}:{bare}%", f"{language}:%{bare}")]


def compound_parts(stems: Iterable[str]) -> list[str]:
    """Return the stems that could be the first or last parts of these stems, if they are compounds."""
    found: list[str] = []
    for language, bare in _in_compounding_languages(stems):
        found += [f"{language}:{bare[:end]}" for end in range(MIN_FIRST, len(bare) - MIN_REST + 1)]
        found += [f"{language}:{bare[start:]}" for start in range(MIN_REST, len(bare) - MIN_LAST + 1)]
    return found


def compound_matches(by_language: Mapping[str, Iterable[str]], stems: Iterable[str]) -> dict[str, int]:
    """Return the known stems that contain a searched stem or are part of one, with the length of the part."""
    found: dict[str, int] = {}
    for language, asked in _in_compounding_languages(stems):
        prefix = len(f"{language}:")
        for stem in by_language.get(language, ()):
            bare = stem[prefix:]
            part, whole = (bare, asked) if len(bare) < len(asked) else (asked, bare)
            if part in whole and _is_compound_with(whole, part):
                found[stem] = max(len(part), found.get(stem, 0))
    return found


def _is_compound_with(whole: str, part: str) -> bool:
    is_first = len(part) >= MIN_FIRST and whole.startswith(part)
    is_last = len(part) >= MIN_LAST and whole.endswith(part)
    return (is_first or is_last) and len(whole) >= len(part) + MIN_REST


def _in_compounding_languages(stems: Iterable[str]) -> Iterator[tuple[str, str]]:
    return (stem for stem in map(lexemes.split_stem, stems) if stem[0] in COMPOUNDING and len(stem[1]) >= MIN_LAST)
