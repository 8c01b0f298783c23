"""Benchmark of every page of the admin, with a million messages in the database."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import psycopg
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse

from benchmarks.aged import SETTLED, age, archived_session
from benchmarks.cases import Case, measured, replay
from benchmarks.clients import WORDS, Http
from benchmarks.figures import Figure
from benchmarks.seed import settle
from benchmarks.site import Site
from memoryproject.conf import RollingSummarySettings
from moments_app.models import Entity, MemoryStream
from sessions_app.models import Session, UserProfile
from tests.support.every_page import Address, every_address, every_page
from tests.support.furnished import furnish

OTHERS = 2_000  # people, each with the sessions below
SESSIONS = 5
EVENTS = 50_000
TURNS_EACH = 100  # turns of a session, with a moment for every 20 of them
OWN_TURNS = 10_000  # turns of the session that the pages show
ROUNDS, REPEATS = 5, 2
PAGES = 1_000  # maximum
TITLE = f"Pages of the admin, with {OTHERS * SESSIONS:,} sessions of {TURNS_EACH} turns"
NOTE = (
    "Every page of the admin, and some searches, as a browser gets them, without static files. The person of the "
    f"pages about one person has a session of {OWN_TURNS:,} turns. The sessions of {SETTLED} people are settled, and "
    "the turns of others are archived. Half of 20,000 facts have ended, and 2,500 jobs failed. Raw: the same "
    "queries, sent by psycopg. The rate column shows their number."
)
CURSOR = re.compile(r"^DECLARE .*? FOR ", re.DOTALL)
WANTED = "≤ 20 queries, p95 ≤ 500 ms"
OF_ARCHIVED = ("change", "trace", "context", "memory", "summaries", "rebuild")  # pages of a session
SEARCHED = {
    "sessions_app_session_changelist": "q=kiln",
    "moments_app_moment_changelist": "q=kiln",
    "moments_app_memoryatom_changelist": "q=kiln",
    "moments_app_memoryatom_recall": "user_id=ada&query=when+does+the+kiln+arive",
    "sessions_app_session_context": "query=when+does+the+kiln+arrive",
    "sessions_app_userprofile_changelist": "q=other-19",
    "moments_app_job_changelist": "q=other-19",
}

# Ada, who already exists, gets one long session, and the others many short ones. The times are in the last two months.
SEED = (
    """
INSERT INTO sessions_app_userprofile
    (user_id, summary, interests, preferred_topics, timezone, metadata, created_at, updated_at)
SELECT 'other-' || n, '', '{}', '{}', 'UTC', '{}', now(), now() - n * interval '1 minute'
FROM generate_series(1, %(others)s) AS n
""",
    """
INSERT INTO sessions_app_session
    (user_id, session_id, agent_id, source, title, status, message_count, total_tokens, last_sequence,
     last_activity_at, built_message_count, built_total_tokens, live_from_sequence, live_tokens, weighted_tokens,
     formed_message_count, formed_weighted_tokens, counted_message_count, embedded_sequence,
     kept_from_sequence, legal_hold, retraction_count, metadata, created_at)
SELECT id, 'chat-' || n, 'default', 'api', '', 'active', %(turns)s, 27 * %(turns)s, %(turns)s - 1,
       now() - random() * interval '60 days', 0, 0, 0, 27 * %(turns)s, 0, %(turns)s, 0, %(turns)s, -1, 0, false, 0,
       '{}', now() - interval '60 days'
FROM sessions_app_userprofile, generate_series(1, %(sessions)s) AS n WHERE user_id LIKE 'other-%%'
""",
    """
INSERT INTO moments_app_moment
    (user_id, source_session_id, key, name, category, summary, detail, topic_tags, emotion_tags, present_persons,
     starts_at, ends_at, first_sequence, last_sequence, previous_moment_keys, engine, created_at, updated_at)
SELECT user_id, id, 'seed-' || id || '-' || n, 'seed', 'session-compression', %(text)s, %(text)s, '{kiln,glaze}',
       '{joy}', '{}', last_activity_at, last_activity_at, 20 * n, 20 * n + 19, '{}', 'seed', last_activity_at, now()
FROM sessions_app_session, generate_series(0, %(turns)s / 20 - 1) AS n WHERE session_id LIKE 'chat-%%'
""",
    """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, external_id, created_at, arrived_at,
     metadata, moment_id)
SELECT session.id, session.user_id, n, 'turn', CASE n %% 2 WHEN 0 THEN 'user' ELSE 'assistant' END, '',
       %(text)s || md5(n::text), 27, 'm' || n, last_activity_at - (%(turns)s - n) * interval '1 minute',
       last_activity_at, '{}', moment.id
FROM sessions_app_session session CROSS JOIN generate_series(0, %(turns)s - 1) AS n
JOIN moments_app_moment moment ON moment.key = 'seed-' || session.id || '-' || n / 20
    AND moment.user_id = session.user_id
WHERE session.session_id LIKE 'chat-%%'
""",
    """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, external_id, created_at, metadata)
SELECT id, user_id, last_sequence + n, 'turn', CASE n %% 2 WHEN 0 THEN 'user' ELSE 'assistant' END, '',
       %(text)s || md5(n::text), 27, 'seed-' || n, now() - (%(own)s - n) * interval '1 minute', '{}'
FROM sessions_app_session, generate_series(1, %(own)s) AS n WHERE id = %(session)s
""",
    """
UPDATE sessions_app_session SET message_count = message_count + %(own)s, last_sequence = last_sequence + %(own)s,
       total_tokens = total_tokens + 27 * %(own)s WHERE id = %(session)s
""",
    """
INSERT INTO moments_app_job
    (job_id, process, status, session_id, user_id, force, params, attempts, queued_at, run_after, started_at,
     finished_at, progress_done, progress_total, result, error, requested_by)
SELECT gen_random_uuid(), 'build_moments', CASE id %% 20 WHEN 0 THEN 'failed' ELSE 'completed' END, id, user_id, false,
       '{}', 1, last_activity_at, last_activity_at, last_activity_at, last_activity_at + interval '2 seconds', 0, 0,
       '{}', CASE id %% 20 WHEN 0 THEN 'the model gave no answer' ELSE '' END, 'threshold'
FROM sessions_app_session, generate_series(1, 5) AS n WHERE session_id LIKE 'chat-%%'
""",
    """
INSERT INTO moments_app_enginecall
    (job_id, purpose, engine, input_tokens, output_tokens, latency_ms, ok, error_kind, error, created_at)
SELECT id, 'moments', 'seed', 4000, 400, 900, status <> 'failed', CASE status WHEN 'failed' THEN 'timeout' ELSE '' END,
       '', queued_at
FROM moments_app_job WHERE requested_by = 'threshold'
""",
    """
INSERT INTO sessions_app_event (type, actor, payload, created_at)
SELECT 'seeded', 'benchmark', '{}', now() - n * interval '1 minute' FROM generate_series(1, %(events)s) AS n
""",
    """
INSERT INTO moments_app_summary
    (session_id, user_id, status, start_sequence, end_sequence, text, facts, source_message_ids, engine, error,
     created_at)
SELECT id, user_id, 'completed', n * 2, n * 2 + 13, %(text)s, '[]', '{}', 'seed', '', last_activity_at
FROM sessions_app_session, generate_series(1, 10) AS n WHERE session_id LIKE 'chat-%%'
""",
    """
INSERT INTO moments_app_contextreceipt
    (context_id, user_id, session_id, query_hash, refs, tokens, trimmed, text_hash, created_at)
SELECT gen_random_uuid(), user_id, id, '', '{}', '{}', '[]', 'seed', last_activity_at
FROM sessions_app_session, generate_series(1, 10) AS n WHERE session_id LIKE 'chat-%%'
""",
)


def figures(site: Site) -> list[Figure]:
    site.fresh.restore()  # the pages show the first rows of each table
    with override_settings(ROLLING_SUMMARY=RollingSummarySettings(enabled=False)):
        session = furnish()
    _seed(session)
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("benchmark"))
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    http = Http(site.port, "", cookie=cookie)
    raw = psycopg.connect(site.conninfo, autocommit=True, prepare_threshold=None).cursor()
    pages = list(islice(_pages(client), PAGES))
    statements = {page.name: _statements(client, page) for page in pages}
    cases = [_case(page, http, raw, statements[page.name]) for page in pages]
    times = measured(cases, rounds=ROUNDS, repeats=REPEATS)
    return [_figure(case, times, len(statements[case.what])) for case in cases]


def _seed(session: Session) -> None:
    numbers = {"others": OTHERS, "sessions": SESSIONS, "turns": TURNS_EACH, "own": OWN_TURNS, "events": EVENTS}
    with connection.cursor() as cursor:
        for statement in SEED:
            cursor.execute(statement, numbers | {"text": WORDS, "session": session.pk})
    for person in UserProfile.objects.filter(user_id__startswith="other-"):
        stream = MemoryStream.objects.ensure_list(person)
        Entity.objects.bulk_create(Entity.written(stream, "Fire the kiln", WORDS, kind="task") for _ in range(10))
    age(numbers | {"text": WORDS})
    settle()


def _pages(client: Client) -> Iterator[Address]:
    """Return the searches, the pages of an archived session, and all pages."""
    urls = {address.name: address.url for address in every_address()}
    yield from (Address(f"{name}, searched", f"{urls[name]}?{query}") for name, query in SEARCHED.items())
    archived = archived_session()
    for name in OF_ARCHIVED:
        page = reverse(f"admin:sessions_app_session_{name}", args=[archived.pk])
        yield Address(f"sessions_app_session_{name}, archived", f"{page}?turn=50&at=50")
    yield from (address for address, _ in every_page(client))


def _statements(client: Client, page: Address) -> list[str]:
    """Return the queries of a page when its caches are warm."""
    client.get(page.url)
    with CaptureQueriesContext(connection) as captured:
        client.get(page.url)
    # Django reads the choices of a field through a server-side cursor. Here they are read at once.
    return [CURSOR.sub("", str(query["sql"])) for query in captured]


def _case(page: Address, http: Http, raw: Any, statements: list[str]) -> Case:
    return Case(
        page.name,
        {"page": lambda: http.request("GET", page.url), "raw": lambda: replay(raw, statements)},
    )


def _figure(case: Case, times: Any, queries: int) -> Figure:
    ours, raw = times[case.what, "page"], times[case.what, "raw"]
    return Figure.of(case.what, ours, raw, rate=f"{queries} queries", wanted=WANTED)
