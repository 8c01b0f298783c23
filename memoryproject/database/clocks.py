"""Correct columns whose times determine when work is done. Times in the future are set to the present.

The watchdog checks most of them and the schedules (`schedules.py`) every minute. The schedule `put_times_back` checks
the others every night. The second factor of a login is checked when it is used (`second_factor.py`), because workers
can't read logins.
"""

from collections.abc import Iterator
from datetime import timedelta

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.sessions.models import Session as Login

from moments_app.models import (
    Circuit,
    ContextReceipt,
    EngineCall,
    FailureGroup,
    Job,
    KeptExchange,
    MemoryAtom,
    Summary,
    WebhookDelivery,
    WebhookEndpoint,
)
from moments_app.models.embedding import KINDS, LONGEST_WAIT
from moments_app.models.webhook import LONGEST_PAUSE
from sessions_app.clock import Times, put_back, with_wrong
from sessions_app.models import ApiKey, Event, Message, Session

DAY = timedelta(days=1)  # maximum wait of a job (until tomorrow) and of a circuit (as its provider requests)

# Columns that extras add when they are loaded. The watchdog checks them every minute.
OF_EXTRAS: list[Times] = []


def checked_every_minute() -> Iterator[Times]:
    """Yield the columns to check every minute. Each is in a small table or is the first column of an index."""
    yield from _jobs()
    yield Times(Circuit, "since")
    yield Times(Circuit, "last_failure_at")
    yield Times(Circuit, "next_probe_at", DAY)
    yield Times(WebhookEndpoint, "waits_until", LONGEST_PAUSE)
    yield Times(WebhookDelivery, "due_at", LONGEST_PAUSE)
    yield Times(FailureGroup, "last_seen_at")
    yield Times(EngineCall, "created_at")  # a daily limit counts today's calls
    yield Times(Event, "created_at")
    yield Times(Summary, "created_at", where={"status": Summary.Status.PROCESSING})
    yield Times(Session, "last_arrived_at", where={"status": Session.Status.ACTIVE})
    yield Times(Session, "last_activity_at")
    yield from (Times(kind, "ask_again_at", LONGEST_WAIT, {"vector": None}) for kind in KINDS.values())
    yield from (Times(pruned, "created_at") for pruned in (ContextReceipt, KeptExchange))
    yield Times(ApiKey, "last_used_at")
    yield from OF_EXTRAS
    yield Times(AccessAttempt, "attempt_time")
    yield Times(Login, "expire_date", timedelta(seconds=settings.SESSION_COOKIE_AGE))


def _jobs() -> Iterator[Times]:
    queued, processing = {"status": Job.Status.QUEUED}, {"status": Job.Status.PROCESSING}
    yield Times(Job, "heartbeat_at", where=processing)
    yield Times(Job, "run_after", timedelta(seconds=settings.JOBS.stale_seconds), queued | {"held_by": ""})
    yield Times(Job, "run_after", DAY, queued)
    for status in (queued, processing):
        yield Times(Job, "queued_at", where=status)
        yield Times(Job, "held_since", where=status)
    for ended in (Job.Status.COMPLETED, Job.Status.SKIPPED, Job.Status.FAILED):
        yield Times(Job, "finished_at", where={"status": ended})


def checked_nightly() -> Iterator[Times]:
    """Yield the columns to check every night. Their times matter only over days, and each check reads a whole table."""
    yield Times(Message, "arrived_at")
    yield Times(Session, "last_arrived_at")
    yield Times(Session, "restored_at")
    yield Times(MemoryAtom, "created_at")
    yield Times(WebhookDelivery, "queued_at")


def correct_times(*, dry_run: bool = False) -> str:
    """Reset timestamps in the future to the current time."""
    wrong = with_wrong(checked_nightly())
    if not dry_run:
        put_back(wrong)
    return f"times in the future: {', '.join(map(str, wrong)) or 'none'}"
