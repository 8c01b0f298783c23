"""Look up a query's words in the texts that a person may search, and adjust the query's vector."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import connection
from django.utils import timezone

from moments_app.recall.meant import meant_terms
from moments_app.recall.request import MOST_WORDS, Vector
from moments_app.recall.spans import span_in
from moments_app.recall.terms import COUNTED, QueryWords, Term, counts_by_kind
from sessions_app import lexemes
from sessions_app.database.sql import array_of_texts
from sessions_app.models import UserProfile

LIKELIEST = 2  # stems of an unknown word that are ranked separately
SAMPLE = 200  # turns whose mean vector is subtracted

# Reads the counts of the person's and the shards' words, by unique indexes. Row security hides other vocabularies.
# Reads the sessions that have grown since the count by the partial index `session_grown`.
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
     WHERE user_id = %(user)s AND message_count > counted_message_count * 1.25)
"""
# The common part of a person's turns, such as names and tone, doesn't distinguish them. So half of the mean of their
# vectors is subtracted from the query's vector. Only its direction matters. This reads an index by person.
_DISTINCT_SQL = """
SELECT COALESCE(%(query)s::halfvec + %(query)s::halfvec - avg(vector), %(query)s)::text FROM (
    SELECT vector FROM moments_app_turnembedding
    WHERE user_id = %(user)s AND model_id = %(model)s AND vector IS NOT NULL LIMIT %(sample)s
) turn;
"""


def query_words(user: UserProfile, agent_id: str, text: str, vector: Vector | None = None) -> QueryWords:
    """Return the statistics of up to `MOST_WORDS` words of a query, with at most two round trips to the database.

    Args:
        user: the person whose memory is searched.
        agent_id: the agent whose shards are searched; blank: only shards that every agent uses.
        vector: the query's vector, if memory is searched by meaning.
    """
    asked = lexemes.words_of_query(text, MOST_WORDS)
    stems = [stem for word in asked for stem in word.stems]
    whose = {"user": user.pk, "application": user.application_id, "agent": agent_id}
    parameters: dict[str, Any] = {**whose, "stems": array_of_texts(stems)}
    distinct = ""
    with connection.cursor() as cursor:
        if vector:  # sent together, to save a round trip
            parameters |= {"query": vector.text, "model": vector.model, "sample": SAMPLE}
            cursor.execute(_DISTINCT_SQL + _WORDS_SQL, parameters)
            cursor.set_result(-2)
            [(distinct,)] = cursor.fetchall()
            cursor.set_result(-1)
        else:
            cursor.execute(_WORDS_SQL, parameters)
        [(shards, vocabularies, sizes, found, uncounted)] = cursor.fetchall()
    counts = {stem: counts_by_kind(numbers) for stem, *numbers in json.loads(found)}
    span = span_in(text, timezone.now().astimezone(user.zone))
    times = span.named if span else frozenset[str]()
    terms = [_term(word, counts, is_counted=not uncounted, is_time=word.word in times) for word in asked]
    counted = {kind: (int(number or 0), int(length or 0)) for kind, (number, length) in json.loads(sizes).items()}
    words = QueryWords(shards, counted, terms, int(uncounted or 0), distinct, span)
    meant = meant_terms(terms, user_id=user.pk, vocabularies=vocabularies, is_counted=words.are_turns_counted)
    return replace(words, terms=[*terms, *meant])


def _term(word: lexemes.QueryWord, counts: Mapping[str, dict[str, int]], *, is_counted: bool, is_time: bool) -> Term:
    """Return a word with its statistics. A text may have several of its stems, so the highest count is used.

    Stems without a count are left out when nearly all texts are counted.
    """
    known = sorted((stem for stem in word.stems if stem in counts), key=lambda stem: -sum(counts[stem].values()))
    together = {kind: max((counts[stem][kind] for stem in known), default=0) for kind in COUNTED}
    stems = tuple(known) or word.stems[:LIKELIEST]
    others = () if known and is_counted else tuple(stem for stem in word.stems if stem not in stems)
    return Term(word.word, stems, together, word.factor, others=others, is_time=is_time)
