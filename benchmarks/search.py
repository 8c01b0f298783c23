"""Benchmark of searching the messages of people with transcripts of very different lengths."""

from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import median

import psycopg
from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.cases import Case, Times, measured, replay
from benchmarks.clients import Http
from benchmarks.figures import Figure
from benchmarks.load import seeded
from benchmarks.seed import settle
from benchmarks.site import Site
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from sessions_app.models import UserProfile
from tests.support.jobs import count

TITLE = "Search what was said over HTTP"
NOTE = (
    "One client searches in turn the turns of people with one long session each, by words, of which some are in all "
    "turns and one is in every four hundredth. Raw: exactly the statements of that search, by psycopg. The rate is the "
    "p50 relative to the first, and the number of statements."
)
LENGTHS = (2_000, 10_000, 100_000)
ROUNDS, REPEATS = 10, 5
QUERY = "glaze17 for the kiln"
MOST = 10

# Otherwise, all turns would have the same words, and a search would rank the newest of them.
VARY = """
UPDATE sessions_app_message
SET content = content || word, search_vector = search_vector || to_tsvector('simple', word), search_version = 1
FROM (SELECT id AS varied, 'glaze' || sequence %% 400 AS word FROM sessions_app_message WHERE user_id = %s) AS words
WHERE id = varied
"""


def figures(site: Site) -> list[Figure]:
    people = [_seeded(length) for length in LENGTHS]
    settle()
    searches = [_statements(person) for person in people]
    cases = [
        _case(site, length, person, statements)
        for length, person, statements in zip(LENGTHS, people, searches, strict=True)
    ]
    times = measured(cases, rounds=ROUNDS, repeats=REPEATS)
    return list(_compared(cases, times, len(searches[0])))


def _seeded(length: int) -> UserProfile:
    session = seeded(f"search-{length}", length, events=False)
    with connection.cursor() as cursor:
        cursor.execute(VARY, [session.user_id])
    count(session.user)  # as the site does, so that searches know which words are rare
    return session.user


def _statements(person: UserProfile) -> list[str]:
    """Return the queries of the search, with their values.

    Raises:
        RuntimeError: It finds nothing.
    """
    with CaptureQueriesContext(connection) as captured:
        found = recall(person, "", RecallRequest(QUERY, ["turn"], mode="text"), most=MOST)
    if not found:
        raise RuntimeError(f"Nothing was found about {person.user_id}.")
    return [str(query["sql"]) for query in captured]


def _case(site: Site, length: int, person: UserProfile, statements: Sequence[str]) -> Case:
    http = Http(site.port, site.key)
    raw = psycopg.connect(site.conninfo, autocommit=True, prepare_threshold=None).cursor()
    body = {"user_id": person.user_id, "query": QUERY, "kinds": ["turn"], "mode": "text", "match_count": MOST}
    return Case(
        f"{length:,} turns",
        {
            "HTTP": lambda: http.request("POST", "/api/v1/memory/search", body),
            "raw": lambda: replay(raw, statements),
        },
    )


def _compared(cases: Sequence[Case], times: Times, statements: int) -> Iterator[Figure]:
    first = median(chain.from_iterable(times[cases[0].what, "HTTP"]))
    for case in cases:
        ours = times[case.what, "HTTP"]
        growth = median(chain.from_iterable(ours)) / first
        rate = f"{growth:.2f} × first, {statements} statements"
        wanted = "≤ 1.5 × first" if case is cases[-1] else ""
        yield Figure.of(case.what, ours, times[case.what, "raw"], rate=rate, wanted=wanted)
