"""Correct wrong times in columns that determine when work is done: a time in the future is set to the present.

The watchdog checks most of these columns, and the schedules (`schedules.py`), every minute. The schedule
`put_times_back` checks the others every night. The second factor of a login is checked when it is used
(`second_factor.py`), because workers can't read logins.
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
from sessions_app.clock import TimeColumn, columns_with_future_times, correct_times
from sessions_app.models import ApiKey, Event, Message, Session

DAY = timedelta(days=1)  # maximum pause: a job may wait until tomorrow, and a provider may request a pause

# Columns that extras add when they are loaded. The watchdog checks them every minute.
EXTRA_COLUMNS: list[TimeColumn] = []


def checked_every_minute() -> Iterator[TimeColumn]:
    """Yield the columns to check every minute. Each is in a small table or is the first column of an index."""
    yield from _jobs()
    yield TimeColumn(Circuit, "since")
    yield TimeColumn(Circuit, "last_failure_at")
    yield TimeColumn(Circuit, "next_probe_at", DAY)
    yield TimeColumn(WebhookEndpoint, "waits_until", LONGEST_PAUSE)
    yield TimeColumn(WebhookDelivery, "due_at", LONGEST_PAUSE)
    yield TimeColumn(FailureGroup, "last_seen_at")
    yield TimeColumn(EngineCall, "created_at")  # a daily limit counts today's calls
    yield TimeColumn(Event, "created_at")
    yield TimeColumn(Summary, "created_at", where={"status": Summary.Status.PROCESSING})
    yield TimeColumn(Session, "last_arrived_at", where={"status": Session.Status.ACTIVE})
    yield TimeColumn(Session, "last_activity_at")
    yield from (TimeColumn(kind, "ask_again_at", LONGEST_WAIT, {"vector": None}) for kind in KINDS.values())
    yield from (TimeColumn(pruned, "created_at") for pruned in (ContextReceipt, KeptExchange))
    yield TimeColumn(ApiKey, "last_used_at")
    yield from EXTRA_COLUMNS
    yield TimeColumn(AccessAttempt, "attempt_time")
    yield TimeColumn(Login, "expire_date", timedelta(seconds=settings.SESSION_COOKIE_AGE))


def _jobs() -> Iterator[TimeColumn]:
    queued, processing = {"status": Job.Status.QUEUED}, {"status": Job.Status.PROCESSING}
    yield TimeColumn(Job, "heartbeat_at", where=processing)
    yield TimeColumn(Job, "run_after", timedelta(seconds=settings.JOBS.stale_seconds), queued | {"held_by": ""})
    yield TimeColumn(Job, "run_after", DAY, queued)
    for status in (queued, processing):
        yield TimeColumn(Job, "queued_at", where=status)
        yield TimeColumn(Job, "held_since", where=status)
    for ended in (Job.Status.COMPLETED, Job.Status.SKIPPED, Job.Status.FAILED):
        yield TimeColumn(Job, "finished_at", where={"status": ended})


def checked_nightly() -> Iterator[TimeColumn]:
    """Yield the columns to check every night.

    They are not urgent, because their times matter only over days. Each check reads a whole table.
    """
    yield TimeColumn(Message, "arrived_at")
    yield TimeColumn(Session, "last_arrived_at")
    yield TimeColumn(Session, "restored_at")
    yield TimeColumn(MemoryAtom, "created_at")
    yield TimeColumn(WebhookDelivery, "queued_at")


def correct_times_nightly(*, dry_run: bool = False) -> str:
    """Reset timestamps in the future to the current time."""
    wrong = columns_with_future_times(checked_nightly())
    if not dry_run:
        correct_times(wrong)
    return f"times in the future: {', '.join(map(str, wrong)) or 'none'}"
