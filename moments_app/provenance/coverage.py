"""Determine where every turn is, using the rows instead of the counters.

A turn in none of the places listed in `Coverage` raises an alarm, and so does a session whose counters disagree with
its rows. The count reads all turns, so it is too slow for API requests.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Sum

from moments_app.models import Job
from moments_app.provenance.rebuild import MOMENTS
from sessions_app.models import Session, UserProfile

MAX_SESSIONS = 100  # maximum number of sessions that `uncovered` returns

# The state of the latest job that builds moments of a session explains why turns of the session are waiting.
_PLACED = """
WITH latest AS (
    SELECT DISTINCT ON (session_id) session_id, CASE
        WHEN status = 'failed' THEN 'failed'
        WHEN status = 'processing' OR status = 'queued' AND run_after <= now() THEN 'queued'
        WHEN status = 'queued' THEN 'held'
    END AS state
    FROM moments_app_job
    WHERE process IN ('build_moments', 'settle') AND status <> 'skipped' AND (%(user)s IS NULL OR user_id = %(user)s)
    ORDER BY session_id, id DESC
), left_out AS (
    SELECT session_pk, (payload->>'first_sequence')::bigint AS first, (payload->>'last_sequence')::bigint AS last
    FROM sessions_app_event
    WHERE type = 'moment_deleted' AND session_pk IS NOT NULL AND (%(user)s IS NULL OR user_pk = %(user)s)
), placed AS (
    SELECT message.session_id, message.created_at, CASE
        WHEN message.retracted_at IS NOT NULL THEN 'retracted'
        WHEN message.moment_id IS NOT NULL THEN 'in_moments'
        WHEN message.sequence >= session.live_from_sequence THEN 'live'
        WHEN EXISTS (
            SELECT 1 FROM left_out WHERE session_pk = message.session_id AND message.sequence BETWEEN first AND last
        ) THEN 'left_out'
        WHEN latest.state IS NOT NULL THEN latest.state
        WHEN message.sequence <= session.summarised_sequence THEN 'digested'
        ELSE 'missing'
    END AS state
    FROM sessions_app_message message
    JOIN sessions_app_session session ON session.id = message.session_id
    LEFT JOIN latest ON latest.session_id = message.session_id
    WHERE message.kind = 'turn' AND (%(user)s IS NULL OR message.user_id = %(user)s)
)
"""
_TOTALS_SQL = f"{_PLACED} SELECT state, count(*), min(created_at) FROM placed GROUP BY state"  # noqa: S608
_SESSIONS_SQL = f"""{_PLACED}
SELECT session_id FROM placed WHERE state = ANY(%(states)s) GROUP BY session_id ORDER BY min(created_at) LIMIT %(most)s
"""  # noqa: S608
# If only one month of a session was restored, turns of later months may still be archived.
_STILL_ARCHIVED = """
SELECT message.session_id FROM sessions_app_message message
JOIN sessions_app_session session ON session.id = message.session_id AND session.user_id = message.user_id
WHERE message.kind = 'archived' AND session.restored_at IS NOT NULL AND message.sequence >= session.kept_from_sequence
  AND (%(user)s IS NULL OR message.user_id = %(user)s)
"""
_STILL_ARCHIVED_SQL = f"SELECT count(*) FROM ({_STILL_ARCHIVED}) archived"  # noqa: S608
_MISCOUNTED_SQL = f"""
SELECT count(*) FROM sessions_app_session session LEFT JOIN (
    SELECT session_id, count(*) AS turns FROM (
        SELECT session_id FROM sessions_app_message WHERE kind = 'turn'
        UNION ALL {_STILL_ARCHIVED}
    ) stored GROUP BY session_id
) there ON there.session_id = session.id
WHERE COALESCE(there.turns, 0) <> session.message_count - session.kept_from_sequence
  AND (%(user)s IS NULL OR session.user_id = %(user)s)
"""  # noqa: S608
WAITING = ("queued", "held", "failed", "digested", "missing")


@dataclass(frozen=True)
class Coverage:
    """The number of turns in each place.

    Args:
        in_moments: in exactly one moment each.
        live: in the live window of their session.
        digested: covered by a digest, and waiting for the next build or for settling.
        queued: in a job that is due or running.
        held: in a job that waits for a backoff or an engine.
        failed: in a failed job.
        left_out: in a deleted moment, so they should not be in memory.
        archived: removed from the transcript by retention.
        retracted: stored, but no longer used.
        missing: in none of the above. Must be 0.
        miscounted: sessions whose counters disagree with their rows. Must be 0.
        oldest_waiting: the time of the oldest turn that is in no moment and not live.
        jobs_with_nothing: jobs that were skipped.
    """

    in_moments: int = 0
    live: int = 0
    digested: int = 0
    queued: int = 0
    held: int = 0
    failed: int = 0
    left_out: int = 0
    archived: int = 0
    retracted: int = 0
    missing: int = 0
    miscounted: int = 0
    oldest_waiting: datetime | None = None
    jobs_with_nothing: int = 0

    @property
    def is_whole(self) -> bool:
        """True if every turn has a place, and all counters agree with the rows."""
        return not self.missing and not self.miscounted


def coverage(user: UserProfile | None = None) -> Coverage:
    """Count the turns of a person, or of all people, in each place."""
    rows = _rows(_TOTALS_SQL, user)
    sessions, jobs = Session.objects.all(), Job.objects.filter(status=Job.Status.SKIPPED)
    if user:
        sessions, jobs = sessions.for_user(user), jobs.for_user(user)
    removed = sessions.filter(kept_from_sequence__gt=0).aggregate(total=Sum(F("kept_from_sequence")))["total"]
    return Coverage(
        **{state: count for state, count, _ in rows},
        archived=(removed or 0) + _rows(_STILL_ARCHIVED_SQL, user)[0][0],
        miscounted=_rows(_MISCOUNTED_SQL, user)[0][0],
        oldest_waiting=min((first for state, _, first in rows if state in WAITING), default=None),
        jobs_with_nothing=jobs.count(),
    )


def uncovered(user: UserProfile | None = None) -> list[Session]:
    """Return sessions with turns that no job will put into moments, sorted by the oldest of these turns."""
    found = [pk for (pk,) in _rows(_SESSIONS_SQL, user, states=["failed", "missing"], most=MAX_SESSIONS)]
    sessions = Session.objects.select_related("user").in_bulk(found)
    return [sessions[pk] for pk in found if pk in sessions]


@transaction.atomic
def queue_builds(user: UserProfile | None = None, *, requested_by: str) -> list[Job]:
    """Queue builds for the sessions that `uncovered` returns, regardless of the thresholds."""
    return [
        Job.objects.request(MOMENTS.process, session, requested_by=requested_by, force=True)
        for session in uncovered(user)
    ]


def _rows(sql: str, user: UserProfile | None, **parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"user": user.pk if user else None, **parameters})
        rows: list[Any] = cursor.fetchall()
    return rows
