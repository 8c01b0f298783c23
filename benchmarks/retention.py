"""Benchmark of archiving turns that are past the retention period."""

import gzip
import os
import tempfile
import time

import psycopg
from django.db import connection

from benchmarks.clients import WORDS
from benchmarks.figures import Figure
from benchmarks.seed import settle
from benchmarks.site import Site, run_command
from sessions_app.models import Session, UserProfile

TURNS = 1_000_000
TURNS_EACH = 100  # turns of each of the many short sessions
OWNERS = 50  # people whose even shorter sessions are archived
TITLE = "Archive turns past the retention period"
NOTE = (
    "One run of `manage.py run_schedule retain` over turns that are a minute apart. It writes the turns to compressed "
    "files, syncs the files, reads them back, compares them, and empties the turns. MB: its peak memory. Raw, for "
    "each person: psycopg copies the rows to one gzip file of the same compression level, syncs it, and deletes the "
    "rows with one DELETE. The p50 column shows the duration of the run."
)

SEED_SESSIONS = """
INSERT INTO sessions_app_session
    (user_id, session_id, agent_id, source, title, status, message_count, total_tokens, last_sequence,
     last_activity_at, built_message_count, built_total_tokens, live_from_sequence, live_tokens, weighted_tokens,
     formed_message_count, formed_weighted_tokens, counted_message_count, embedded_sequence, summarised_sequence,
     kept_from_sequence, legal_hold, retraction_count, metadata, created_at)
SELECT %(user)s, 's' || n, 'default', 'api', '', 'cleared', %(turns)s, 27 * %(turns)s, %(turns)s - 1,
       now(), %(turns)s, 0, %(turns)s, 0, 0, %(turns)s, 0, %(turns)s, -1, %(turns)s - 1, 0, false, 0, '{}', now()
FROM generate_series(1, %(sessions)s) AS n
"""
SEED_MOMENT = """
INSERT INTO moments_app_moment
    (user_id, key, name, category, summary, detail, topic_tags, emotion_tags, present_persons, starts_at, ends_at,
     first_sequence, last_sequence, previous_moment_keys, engine, created_at, updated_at)
VALUES (%s, 'seed', 'seed', 'session-compression', 's', '', '{}', '{}', '{}', now(), now(), 0, 0, '{}', 'seed', now(),
        now())
RETURNING id
"""
SEED_TURNS = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, external_id, moment_id,
     created_at, arrived_at, metadata)
SELECT id, user_id, n, 'turn', CASE n %% 2 WHEN 0 THEN 'user' ELSE 'assistant' END, '', %(text)s, 27, 'm' || n,
       %(moment)s, said_at, said_at, '{}'
FROM sessions_app_session, generate_series(0, last_sequence) AS n,
    LATERAL (SELECT now() - interval '60 days' - (last_sequence - n) * interval '1 minute' AS said_at) said
WHERE user_id = %(user)s
"""


def figures(site: Site) -> list[Figure]:
    return [
        _measured(site, f"one session of {TURNS:,} turns", sessions=1, turns=TURNS),
        _measured(
            site,
            f"{TURNS // TURNS_EACH // 10:,} sessions of {TURNS_EACH} turns",
            sessions=TURNS // TURNS_EACH // 10,
            turns=TURNS_EACH,
        ),
        _measured(site, f"40 sessions of 20 turns of {OWNERS} people", sessions=40, turns=20, people=OWNERS),
    ]


def _measured(site: Site, what: str, *, sessions: int, turns: int, people: int = 1) -> Figure:
    _seed(f"raw {what}", people, sessions, turns)
    theirs = sum(_raw(site, f"raw {what} {number}") for number in range(people))
    _seed(what, people, sessions, turns)
    ours, peak = run_command("run_schedule", "retain")
    archived = Session.objects.filter(user__user_id__startswith=what, kept_from_sequence=turns)
    if archived.count() != people * sessions:
        raise RuntimeError("Not all turns were archived.")
    rate = f"{people * sessions * turns / ours:,.0f} turns/s, {peak / 1e6:.0f} MB"
    return Figure.of(what, [[ours]], [[theirs]], rate=rate, wanted="< 300 MB")


def _seed(name: str, people: int, sessions: int, turns: int) -> None:
    for number in range(people):
        user = UserProfile.objects.ensure(f"{name} {number}")
        with connection.cursor() as cursor:
            cursor.execute(SEED_SESSIONS, {"user": user.pk, "sessions": sessions, "turns": turns})
            cursor.execute(SEED_MOMENT, [user.pk])
            [moment] = cursor.fetchone() or [None]
            cursor.execute(SEED_TURNS, {"user": user.pk, "text": WORDS, "moment": moment})
    settle()


def _raw(site: Site, name: str) -> float:
    user = UserProfile.objects.get(user_id=name).pk
    started = time.monotonic()
    columns = "id, session_id, sequence, role, content, payload, external_id, moment_id, created_at, metadata"
    with psycopg.connect(site.conninfo) as raw, tempfile.TemporaryFile() as file:
        with gzip.GzipFile("", "wb", 6, file) as compressed:
            copy = f"COPY (SELECT {columns} FROM sessions_app_message WHERE user_id = {user}) TO STDOUT"
            with raw.cursor().copy(copy) as rows:
                for row in rows:
                    compressed.write(row)
        os.fsync(file.fileno())
        raw.execute("DELETE FROM sessions_app_message WHERE user_id = %s", [user])
        raw.execute("UPDATE sessions_app_session SET kept_from_sequence = message_count WHERE user_id = %s", [user])
    return time.monotonic() - started
