"""Look up the words of a query in what a person may find, and adjust the query's vector to what the person said."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import connection

from moments_app.recall.meant import meant_terms
from moments_app.recall.request import MOST_WORDS, Vector
from moments_app.recall.terms import COUNTED, QueryWords, Term, counts_by_kind
from sessions_app import lexemes
from sessions_app.models import UserProfile
from sessions_app.rows import array_of_texts

LIKELIEST = 2  # stems of a word that nothing has, which are ranked each by itself
SAMPLE = 200  # turns that tell what all have in common

# The person's own words and those of the shards; both by unique indexes. What is counted is seen by row security. The
# sessions that have grown since by `session_grown`, which has no others.
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
# What a person's turns have in common, such as names and tone, tells none of them from the others. So half of the mean
# of their vectors is subtracted from the query's vector. Only its direction matters. This reads an index by person.
_DISTINCT_SQL = """
SELECT COALESCE(%(query)s::halfvec + %(query)s::halfvec - avg(vector), %(query)s)::text FROM (
    SELECT vector FROM moments_app_turnembedding
    WHERE user_id = %(user)s AND model_id = %(model)s AND vector IS NOT NULL LIMIT %(sample)s
) turn;
"""


def query_words(user: UserProfile, agent_id: str, text: str, vector: Vector | None = None) -> QueryWords:
    """Return the statistics of up to `MOST_WORDS` words of a query, with at most two messages to the database.

    Args:
        user: the person whose memory is searched.
        agent_id: the agent whose shards are searched; blank: only those of every agent.
        text: the query.
        vector: of the query, if memory is searched by meaning.
    """
    asked = lexemes.words_of_query(text, MOST_WORDS)
    stems = [stem for word in asked for stem in word.stems]
    whose = {"user": user.pk, "application": user.application_id, "agent": agent_id}
    parameters: dict[str, Any] = {**whose, "stems": array_of_texts(stems)}
    distinct = ""
    with connection.cursor() as cursor:
        if vector:  # in the same message
            parameters |= {"query": vector.text, "model": vector.model, "sample": SAMPLE}
            cursor.execute(_DISTINCT_SQL + _WORDS_SQL, parameters)
            cursor.set_result(-2)
            [(distinct,)] = cursor.fetchall()
            cursor.set_result(-1)
        else:
            cursor.execute(_WORDS_SQL, parameters)
        [(shards, vocabularies, sizes, found, uncounted)] = cursor.fetchall()
    counts = {stem: counts_by_kind(numbers) for stem, *numbers in json.loads(found)}
    terms = [_term(word, counts, is_counted=not uncounted) for word in asked]
    counted = {kind: (int(number or 0), int(length or 0)) for kind, (number, length) in json.loads(sizes).items()}
    words = QueryWords(shards, counted, terms, int(uncounted or 0), distinct)
    meant = meant_terms(terms, user_id=user.pk, vocabularies=vocabularies, is_counted=words.are_turns_counted)
    return replace(words, terms=[*terms, *meant])


def _term(word: lexemes.QueryWord, counts: Mapping[str, dict[str, int]], *, is_counted: bool) -> Term:
    """A word with what is known of it. A text may have several of its stems, so the commonest tells.

    Stems that nothing was counted under are left out when nearly everything was counted.
    """
    known = sorted((stem for stem in word.stems if stem in counts), key=lambda stem: -sum(counts[stem].values()))
    together = {kind: max((counts[stem][kind] for stem in known), default=0) for kind in COUNTED}
    stems = tuple(known) or word.stems[:LIKELIEST]
    others = () if known and is_counted else tuple(stem for stem in word.stems if stem not in stems)
    return Term(word.word, stems, together, word.factor, others=others)
