"""Benchmark of searching facts by words and by meaning, with few and with many people."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

from benchmarks.cases import Case, measured
from benchmarks.clients import Http
from benchmarks.figures import Figure
from benchmarks.seed import settle
from benchmarks.site import Site
from moments_app.jobs.runner import run_job
from moments_app.models import EmbeddingModel, Job
from moments_app.recall.index_words import CountWords
from moments_app.recall.query_terms import query_words
from moments_app.recall.request import RecallRequest, Vector
from moments_app.recall.scoring import Lookup
from moments_app.recall.search import recall
from sessions_app.models import UserProfile
from tests.support.openai_server import OpenAIServer, vector_of

WIDTH = 384
TITLE = "Search facts by words and by meaning"
NOTE = (
    f"Facts of twelve words, and vectors of {WIDTH} numbers. A query contains five words of one of the person's facts "
    "and requests ten results. HTTP: `POST memory/search`, with the query's vector in the cache, so the time of the "
    "embeddings endpoint is not included. Function: `recall`, with three statements. Raw, for both: only the two "
    "searches, sent by psycopg."
)
SIZES = ((10_000, 1), (100_000, 1_000), (1_000_000, 100_000))  # facts, people
ROUNDS, REPEATS = 7, 20
QUERIES = 10
BASES = 2_000  # each vector is the sum of two of these, so that vectors form clusters like real ones
WORDS = 20_000
MOST = 100

SEED_PEOPLE = """
INSERT INTO sessions_app_userprofile
    (user_id, summary, interests, preferred_topics, timezone, metadata, created_at, updated_at)
SELECT 'recall-' || n, '', '{}', '{}', 'UTC', '{}', now(), now() FROM generate_series(0, %(people)s - 1) AS n
ON CONFLICT DO NOTHING
"""
SEED_STREAM = """
INSERT INTO moments_app_memorystream
    (stream_id, stream_type, agent_id, user_id, name, is_active, extraction_prompt, extracts_observations,
     extracts_facts, observation_min, observation_max, observation_max_words, fact_min, fact_max, fact_max_words,
     consolidation_prompt, consolidation_trigger, consolidated_max_words, fact_buffer_max, consolidation_model,
     pinned_content, consolidated_content, last_updated_at)
SELECT gen_random_uuid(), 'user', 'default', id, '', true, '', true, true, 0, 5, 25, 0, 5, 50, '', 5, 400, 100, '', '',
       '', now()
FROM sessions_app_userprofile WHERE user_id = 'recall-0' ON CONFLICT DO NOTHING
"""
# The first hundredth belongs to the first person, and the others take turns. Words with lower numbers are more common.
SEED_FACTS = """
WITH person AS (
    SELECT id, row_number() OVER (ORDER BY id) - 1 AS number FROM sessions_app_userprofile
    WHERE user_id LIKE 'recall-%%' ORDER BY id LIMIT %(people)s
)
INSERT INTO moments_app_memoryatom
    (stream_id, atom_id, user_id, atom_type, content, content_hash, state, formed_at, created_at, access_count,
     is_pinned, source_message_ids, engine)
SELECT stream.id, gen_random_uuid(), person.id, 'fact', text.content, n::text, 'active',
       now() - n * interval '1 minute', now(), 0, false, '{}', 'benchmark'
FROM generate_series(1, %(facts)s) AS n
JOIN person ON person.number = CASE WHEN n <= %(facts)s / 100 THEN 0 ELSE n %% %(people)s END
CROSS JOIN (SELECT id FROM moments_app_memorystream WHERE user_id = (SELECT id FROM person WHERE number = 0)) stream
CROSS JOIN LATERAL (
    SELECT string_agg('w' || floor(power(random(), 3) * %(words)s)::int, ' ') AS content
    FROM generate_series(1, 12) WHERE n = n
) text
"""
SEED_BASES = """
DROP TABLE IF EXISTS base;
CREATE TEMPORARY TABLE base AS
SELECT i, (SELECT array_agg(random() - 0.5) FROM generate_series(1, %(width)s) WHERE i = i)::halfvec AS vector
FROM generate_series(0, %(bases)s - 1) AS i;
ANALYZE base, moments_app_memoryatom
"""
SEED_VECTORS = """
INSERT INTO moments_app_factembedding (source_id, user_id, model_id, said_at, vector, created_at)
SELECT atom.id, atom.user_id, %(model)s, atom.formed_at, l2_normalize(one.vector + other.vector), now()
FROM moments_app_memoryatom atom
JOIN base one ON one.i = atom.id %% %(bases)s
JOIN base other ON other.i = (atom.id / %(bases)s * 7919 + atom.id) %% %(bases)s
"""

RAW_WORDS = """
SELECT id, {formula} AS score FROM moments_app_memoryatom
WHERE memory_words(COALESCE('u' || user_id, 's' || stream_id), search_vector) && %s
  AND state <> 'evicted'
ORDER BY score DESC LIMIT {most}
"""
RAW_MEANING = """
SELECT source_id, vector::halfvec({width}) <=> %s::halfvec({width}) AS distance FROM moments_app_factembedding
WHERE user_id = %s AND model_id = {model} ORDER BY distance LIMIT {most}
"""


Statement = tuple[Any, list[Any]]


@dataclass(frozen=True)
class PersonQueries:
    """A person, and queries to use in turn."""

    person: UserProfile
    queries: list[str]


def figures(site: Site) -> list[Figure]:
    with OpenAIServer() as server:
        port = site.serve(EMBEDDING__PROVIDER="openai", EMBEDDING__BASE_URL=server.base_url)
        return [figure for facts, people in SIZES for figure in _of_size(site, port, facts, people)]


def _of_size(site: Site, port: int, facts: int, people: int) -> Iterator[Figure]:
    model = _seeded(facts, people)
    numbers = (0, people // 2) if people > 1 else (0,)
    names = [f"{_share(number, facts, people):,} of {facts:,} facts" for number in numbers]
    cases = [_case(site, port, name, _asked(number), model) for name, number in zip(names, numbers, strict=True)]
    times = measured(cases, rounds=ROUNDS, repeats=REPEATS)
    for name in names:
        for way, wanted in (("HTTP", "≤ 25 ms"), ("function", "≤ 3 × raw")):
            yield Figure.of(f"{name}, {way}", times[name, way], times[name, "raw"], wanted=wanted)


def _share(number: int, facts: int, people: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM moments_app_memoryatom a JOIN sessions_app_userprofile u ON u.id = a.user_id "
            "WHERE u.user_id = %s",
            [f"recall-{number}"],
        )
        [found] = cursor.fetchone() or [0]
    return int(found)


def _seeded(facts: int, people: int) -> EmbeddingModel:
    """Create facts with words and vectors, and the indexes that `manage.py embed` builds."""
    parameters = {"facts": facts, "people": people, "words": WORDS}
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE moments_app_memoryatom, moments_app_factembedding CASCADE")
        cursor.execute("DELETE FROM moments_app_embeddingmodel")
        cursor.execute(SEED_PEOPLE, parameters)
        cursor.execute(SEED_STREAM)
        cursor.execute(SEED_FACTS, parameters)
        cursor.execute(
            "INSERT INTO moments_app_embeddingmodel (name, dimensions, is_active, created_at) "
            "VALUES (%s, %s, true, now()) RETURNING id",
            [settings.EMBEDDING.model, WIDTH],
        )
        [model] = cursor.fetchone() or [0]
        vectors = {"model": model, "width": WIDTH, "bases": BASES}
        cursor.execute(SEED_BASES, vectors)
        cursor.execute(SEED_VECTORS, vectors)
        cursor.execute("SET maintenance_work_mem = '2GB'")
    found = EmbeddingModel.objects.ensure(settings.EMBEDDING.model, WIDTH)
    settle()
    return found


def _asked(number: int) -> PersonQueries:
    """Return queries of five words from the person's own facts."""
    person = UserProfile.objects.get(user_id=f"recall-{number}")
    job = Job.objects.request(CountWords.name, user_id=person.pk, requested_by="benchmark", force=True)
    run_job(job.job_id)
    contents = person.atoms.order_by("pk").values_list("content", flat=True)[:QUERIES]
    return PersonQueries(person, [" ".join(content.split()[:5]) for content in contents])


def _case(site: Site, port: int, name: str, asked: PersonQueries, model: EmbeddingModel) -> Case:
    http = Http(port, site.key)
    raw = psycopg.connect(site.conninfo, autocommit=True)
    raw.execute("SET hnsw.iterative_scan = relaxed_order")
    raw.execute("SET hnsw.ef_search = 100")
    body = {"user_id": asked.person.user_id, "kinds": ["fact"], "match_count": 10}
    vectors = {query: vector_of(query, WIDTH) for query in asked.queries}
    lookups = {query: query_words(asked.person, "", query).lookup("fact") for query in asked.queries}
    _warm(http, body, asked.queries)
    turns = {way: iter(_again(asked.queries)) for way in ("HTTP", "function", "raw")}

    def over_http() -> None:
        http.request("POST", "/api/v1/memory/search", body | {"query": next(turns["HTTP"])})

    def by_function() -> None:
        query = next(turns["function"])
        question = RecallRequest(query, ["fact"], vector=Vector(model.pk, WIDTH, vectors[query]))
        recall(asked.person, "", question, most=10)

    def by_raw() -> None:
        query = next(turns["raw"])
        for sql, parameters in _raw(asked.person, lookups[query], vectors[query], model):
            raw.execute(sql, parameters).fetchall()

    first = asked.queries[0]
    _print_plans(raw, name, _raw(asked.person, lookups[first], vectors[first], model))
    return Case(name, {"HTTP": over_http, "function": by_function, "raw": by_raw})


def _again(queries: Sequence[str]) -> Iterator[str]:
    while True:
        yield from queries


def _warm(http: Http, body: dict[str, Any], queries: Sequence[str]) -> None:
    """Let each web process cache the vectors of the queries."""
    for query in queries:
        for _ in range(4 * settings.CONF.web_workers):
            http.request("POST", "/api/v1/memory/search", body | {"query": query})


def _raw(person: UserProfile, lookup: Lookup, vector: list[float], model: EmbeddingModel) -> list[Statement]:
    """Return the two searches, written by hand."""
    formula = " + ".join(["%s * ts_rank(search_vector, %s::tsquery)"] * len(lookup.queries))
    terms = [part for term in zip(lookup.weights, lookup.queries, strict=True) for part in term]
    words = [f"u{person.pk} {stem}" for stem in lookup.rare]
    return [
        (RAW_WORDS.format(formula=formula, most=MOST), [*terms, words]),
        (RAW_MEANING.format(width=WIDTH, model=model.pk, most=MOST), [str(vector), person.pk]),
    ]


def _print_plans(raw: "psycopg.Connection[Any]", name: str, statements: Sequence[Statement]) -> None:
    for (sql, parameters), search in zip(statements, ("words", "meaning"), strict=True):
        rows = raw.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS OFF) {sql}", parameters).fetchall()
        print(f"\nPlan by {search}, {name}:\n")
        print("\n".join(f"    {line[:150]}" for (line,) in rows))
