"""Benchmark of contexts for sessions of very different lengths, and people with very different amounts of memory."""

from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import median
from urllib.parse import urlencode

import psycopg
from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.build import SEED_MOMENTS
from benchmarks.cases import Case, Times, measured, replay
from benchmarks.clients import WORDS, Http
from benchmarks.figures import Figure
from benchmarks.seed import SEED_TURNS, settle
from benchmarks.site import Site
from moments_app.context.assemble import ContextRequest, serve_context
from moments_app.models import MemoryStream, Summary
from sessions_app.models import ApiKey, Session, UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.jobs import count

TITLE = "Context over HTTP"
NOTE = (
    "One client requests all contexts in turn, with a query. Cold: `refresh=true`. Cached: static layers come from "
    "the cache. Raw: the same statements, sent by psycopg. The rate column shows the p50 relative to the first row of "
    "its group."
)
LENGTHS = (200, 10_000, 200_000)
MEMORIES = (10, 1_000, 10_000)  # moments and entities
ROUNDS = 15
REPEATS = 4
LIVE_TURNS = 40  # turns after the latest partition event
BUILD_TURNS = 175  # turns between two partition events
QUERY = "When does the heating element for the kiln arrive, and who fits it?"

SEED_EVENTS = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, created_at, metadata)
SELECT session_id, user_id, sequence, 'partition', 'tool', 'session_partition', content, 27, created_at, '{}'
FROM sessions_app_message WHERE session_id = %s AND sequence %% %s = %s AND sequence <= %s
"""
SEED_ENTITIES = """
INSERT INTO moments_app_memoryatom (stream_id, user_id, atom_id, atom_type, kind, content, content_hash, state,
    formed_at, created_at, is_pinned, access_count, source_message_ids, engine)
SELECT %s, %s, gen_random_uuid(), 'fact', 'task',
    'Task ' || n || CASE n %% 50 WHEN 0 THEN ' for the kiln' ELSE '' END || chr(10) || %s, 'task' || n, 'active',
    now() - n * interval '1 hour', now(), false, 0, '{}', ''
FROM generate_series(1, %s) AS n
"""
SEED_LINKS = """
INSERT INTO moments_app_entitylink (user_id, from_entity_id, to_entity_id, relation)
SELECT user_id, id, lead(id) OVER (ORDER BY id), 'blocks' FROM moments_app_memoryatom WHERE stream_id = %s
ORDER BY id LIMIT %s
"""


def figures(site: Site) -> list[Figure]:
    by_length = [_session(f"{length:,} turns", length, MEMORIES[1]) for length in LENGTHS]
    by_memory = [_session(f"{size:,} moments and entities", LENGTHS[0], size) for size in MEMORIES]
    settle()
    groups = [[_case(site, *named) for named in group] for group in (by_length, by_memory)]
    times = measured([case for group in groups for case in group], rounds=ROUNDS, repeats=REPEATS)
    return [figure for group in groups for way in ("cold", "cached") for figure in _compared(group, way, times)]


def _session(what: str, length: int, memories: int) -> tuple[str, Session]:
    user = UserProfile.objects.ensure(f"context-{length}-{memories}-{what[:3]}")
    last_event = length - 1 - LIVE_TURNS
    session = Session.objects.create(
        user=user,
        session_id=user.user_id,
        message_count=length,
        last_sequence=length - 1,
        total_tokens=27 * length,
        live_tokens=27 * length,
        live_from_sequence=last_event + 1,
    )
    with connection.cursor() as cursor:
        cursor.execute(SEED_TURNS, {"turns": length, "session": session.pk, "text": WORDS})
        cursor.execute(SEED_EVENTS, [session.pk, BUILD_TURNS, last_event % BUILD_TURNS, last_event])
        cursor.execute(SEED_MOMENTS, [session.user_id, WORDS, memories])
        stream = MemoryStream.objects.ensure_list(session.user)
        cursor.execute(SEED_ENTITIES, [stream.pk, session.user_id, WORDS, memories])
        cursor.execute(SEED_LINKS, [stream.pk, memories - 1])
    end = session.last_sequence - 4
    Summary.objects.create(
        session=session,
        user=session.user,
        start_sequence=end - 13,
        end_sequence=end,
        text=WORDS * 8,
        status="completed",
    )
    count(session.user)  # as the site does, so that searches know which words are rare
    return what, session


def _case(site: Site, what: str, session: Session) -> Case:
    http = Http(site.port, site.key)
    asked = {"user_id": session.user.user_id, "session_id": session.session_id, "query": QUERY}
    path = f"/api/v1/memory/context?{urlencode(asked)}"
    raw = psycopg.connect(site.conninfo, autocommit=True, prepare_threshold=None).cursor()
    statements = {refresh: _statements(site, session, refresh) for refresh in (True, False)}
    return Case(
        what,
        {
            "cold": lambda: http.request("GET", f"{path}&refresh=true"),
            "cold raw": lambda: replay(raw, statements[True]),
            "cached": lambda: http.request("GET", path),
            "cached raw": lambda: replay(raw, statements[False]),
        },
    )


def _statements(site: Site, session: Session, refresh: bool) -> list[str]:
    """Return the queries of such a request, with their values."""
    with CaptureQueriesContext(connection) as captured:
        ApiKey.objects.verify(site.key)
        wanted = ContextRequest(query=QUERY, refresh=refresh)
        serve_context(session.user.user_id, session.session_id, wanted, application=DEFAULT, retrieval="query")
    return [str(query["sql"]) for query in captured]


def _compared(cases: Sequence[Case], way: str, times: Times) -> Iterator[Figure]:
    first = median(chain.from_iterable(times[cases[0].what, way]))
    limit = "≤ 30 ms" if way == "cold" else "≤ 10 ms"
    for case in cases:
        ours = times[case.what, way]
        growth = median(chain.from_iterable(ours)) / first
        flat = ", ≤ 1.5 × first" if "turns" in case.what and case is cases[-1] else ""
        yield Figure.of(
            f"{way}: {case.what}",
            ours,
            times[case.what, f"{way} raw"],
            rate="" if case is cases[0] else f"{growth:.2f} × first",
            wanted=f"{limit}{flat}",
        )
