"""Benchmark of settling idle sessions with an instant engine, so that only the platform's own time is measured."""

import time
from collections.abc import Sequence
from typing import Self
from unittest.mock import patch

import psycopg
from django.conf import settings
from django.db import connection
from django.test import override_settings

from benchmarks import seed
from benchmarks.build import InstantEngine
from benchmarks.clients import WORDS
from benchmarks.figures import Figure
from benchmarks.site import Site, run_command
from moments_app import engines
from moments_app.engines.calls.formation import FormationAnswer, FormationRequest
from moments_app.engines.calls.texts import DigestAnswer, DigestRequest, SummaryAnswer, SummaryRequest
from moments_app.engines.shared_call import Part
from moments_app.jobs import runner as run
from moments_app.models import Job
from moments_app.sessions.settle import Settle
from sessions_app.models import Session, UserProfile

SESSIONS = 10_000
TURNS = 20  # turns of each session
SETTLED = 300  # minimum number of sessions to settle and measure
TITLE = f"Settle quiet sessions of {TURNS} turns"
NOTE = (
    "Requested: `manage.py run_schedule compact_sessions` queues a job for each session. The row shows the duration "
    "of the command, and its peak memory (resident size). Settled: one worker writes moments, memories and the "
    "digest that clears each session, several sessions at a time. Raw, for both: psycopg writes the rows of "
    f"{SETTLED} settled sessions, with one transaction per session."
)

SEED_SESSIONS = (
    seed.SEED_SESSIONS.replace("'chat'", "'quiet-' || n").replace(
        "0, %(turns)s, 0, %(turns)s, -1", "0, 0, 0, %(turns)s, -1"
    )
    + "CROSS JOIN generate_series(1, %(sessions)s) AS n WHERE user_id = 'quiet'"
)
SEED_TURNS = seed.SEED_TURNS + " AND user_id = %(user)s"
# The rows that settling a session writes, all at once.
RAW = (
    """
    WITH moment AS (
        INSERT INTO moments_app_moment
            (user_id, source_session_id, key, name, category, summary, detail, topic_tags, emotion_tags,
             present_persons, starts_at, ends_at, first_sequence, last_sequence, previous_moment_keys, engine,
             created_at, updated_at)
        SELECT user_id, id, 'raw-' || id, 'raw', 'session-compression', %(text)s, %(text)s, '{a,b}', '{a,b}', '{}',
               now(), now(), 0, last_sequence, '{}', 'raw', now(), now()
        FROM sessions_app_session WHERE id = %(session)s RETURNING id
    )
    UPDATE sessions_app_message SET moment_id = (SELECT id FROM moment) WHERE session_id = %(session)s
    """,
    "UPDATE sessions_app_userprofile SET summary = %(text)s WHERE id = %(user)s",
    """
    INSERT INTO moments_app_summary
        (session_id, user_id, status, start_sequence, end_sequence, text, facts, source_message_ids, engine, error,
         created_at)
    VALUES (%(session)s, %(user)s, 'completed', 0, 19, %(text)s, '[]', '{}', 'raw', '', now())
    """,
    """
    INSERT INTO sessions_app_message
        (session_id, user_id, sequence, kind, role, tool_name, content, tokens, created_at, metadata)
    VALUES (%(session)s, %(user)s, 19, 'partition', 'system', 'session_partition', %(text)s, 27, now(), '{}')
    """,
    """
    INSERT INTO moments_app_job
        (job_id, process, user_id, session_id, status, force, params, attempts, queued_at, run_after, progress_done,
         progress_total, result, error, requested_by)
    SELECT gen_random_uuid(), 'raw-' || n, %(user)s, %(session)s, 'completed', true, '{}', 1, now(), now(), 0, 0, '{}',
           '', 'raw'
    FROM generate_series(1, 4) AS n
    """,
    """
    INSERT INTO sessions_app_event (type, actor, user_pk, session_pk, payload, created_at)
    SELECT 'raw', 'raw', %(user)s, %(session)s, '{}', now() FROM generate_series(1, 4)
    """,
    "UPDATE sessions_app_session SET status = 'cleared', live_from_sequence = 20 WHERE id = %(session)s",
)


class SettlingEngine(InstantEngine):
    """An engine that returns all results for settling without reading the requests."""

    def with_answers(self, parts: Sequence[Part]) -> Self:
        """Return this engine."""
        return self

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        """Return a fact and an observation for each stream."""
        item = {"text": f"A fact of {request.turns[0].created_at}.", "turns": [request.turns[0].index]}
        entries = [{"stream": part.label, "facts": [item], "observations": [item]} for part in request.sections]
        return FormationAnswer(streams=entries)

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the same text for every window."""
        return SummaryAnswer(summary_text=WORDS)

    def digest(self, request: DigestRequest) -> DigestAnswer:
        """Return the same text, and no lesson."""
        return DigestAnswer(context=WORDS)


def figures(site: Site) -> list[Figure]:
    user = _seed()
    asking, peak = run_command("run_schedule", "compact_sessions")
    settling = _settle()
    cleared = Session.objects.filter(status="cleared", user=user).count()
    if cleared < SETTLED:
        raise RuntimeError(f"{cleared} of {SETTLED} sessions were cleared.")
    raw = _raw(site, user)
    rate = f"{SESSIONS / asking:,.0f} sessions/s, {peak / 1e6:.0f} MB"
    return [
        Figure.of(f"{SESSIONS:,} requested", [[asking]], [[raw]], rate=rate, wanted="bounded memory"),
        Figure.of(f"{cleared} settled", [[settling]], [[raw]], rate=f"{cleared / settling:,.1f} sessions/s"),
    ]


def _seed() -> UserProfile:
    user = UserProfile.objects.ensure("quiet")
    with connection.cursor() as cursor:
        cursor.execute(SEED_SESSIONS, {"turns": TURNS, "sessions": SESSIONS})
        cursor.execute(SEED_TURNS, {"turns": TURNS, "session": None, "text": WORDS, "user": user.pk})
        cursor.execute(
            "UPDATE sessions_app_session SET last_arrived_at = now() - interval '1 day' WHERE user_id = %s", [user.pk]
        )
        cursor.execute("UPDATE sessions_app_session SET status = 'cleared' WHERE user_id <> %s", [user.pk])
    seed.settle()
    return user


def _settle() -> float:
    """Run due jobs like a worker until enough sessions are settled. Return the seconds."""
    formation = settings.MEMORY_FORMATION.model_copy(update={"enabled": True})
    settled = Job.objects.filter(process=Settle.name, status=Job.Status.COMPLETED)
    with (
        patch.object(engines, "engine_for", return_value=SettlingEngine()),
        override_settings(MEMORY_FORMATION=formation),
    ):
        started = time.monotonic()
        while settled.count() < SETTLED and (job := Job.objects.claim_next([Settle.name], after=Job.FIRST_SUBJECT)):
            run.run_claimed(job)
        return time.monotonic() - started


def _raw(site: Site, user: UserProfile) -> float:
    waiting = Session.objects.filter(user=user, status="active").order_by("-id").values_list("pk", flat=True)[:SETTLED]
    sessions = list(waiting)
    started = time.monotonic()
    with psycopg.connect(site.conninfo) as raw:
        for session in sessions:
            with raw.transaction():
                for statement in RAW:
                    raw.execute(statement, {"session": session, "user": user.pk, "text": WORDS})
    return time.monotonic() - started
