"""What runs by itself, and how often. `migrate` registers this table with the queue, without duplicates."""

from dataclasses import dataclass
from datetime import time, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone

if TYPE_CHECKING:
    from django_q.models import Schedule


@dataclass(frozen=True)
class Scheduled:
    """One recurring task: every so many minutes, or daily.

    Args:
        name: also the name of the management command that does the same by hand.
        task: dotted path of the function.
        minutes: between two runs.
        daily_at: time of day, UTC.
    """

    name: str
    task: str
    minutes: int | None = None
    daily_at: time | None = None

    def __str__(self) -> str:
        return f"every {self.minutes} min" if self.daily_at is None else f"daily at {self.daily_at:%H:%M} UTC"


SCHEDULES = [
    Scheduled("recover_jobs", "moments_app.tasks.recover_jobs", minutes=1),
    Scheduled("count_words", "moments_app.tasks.count_words", minutes=1),
    Scheduled("index_words", "moments_app.tasks.index_words", minutes=1),
    Scheduled(
        "compact_sessions", "moments_app.tasks.compact_sessions", minutes=settings.SESSION_COMPACTION.interval_minutes
    ),
    Scheduled("form_memories", "moments_app.tasks.form_memories", minutes=10),
    Scheduled("embed", "moments_app.tasks.embed", minutes=10),
    Scheduled("prune_receipts", "moments_app.tasks.prune_receipts", minutes=60),
    Scheduled("housekeeping", "moments_app.tasks.housekeeping", daily_at=time(4)),
    Scheduled("retain", "sessions_app.tasks.retain", daily_at=time(3)),
]


def register_schedules(**_: Any) -> None:
    """Makes the queue's schedules equal to the table; a schedule that an operator paused stays paused."""
    from django_q.models import Schedule

    for entry in SCHEDULES:
        kind = Schedule.MINUTES if entry.daily_at is None else Schedule.DAILY
        fields = {"func": entry.task, "schedule_type": kind, "minutes": entry.minutes}
        row, _created = Schedule.objects.update_or_create(name=entry.name, defaults=fields)
        if entry.daily_at is not None:
            _set_time_of_day(row, entry.daily_at)


def _set_time_of_day(row: "Schedule", at: time) -> None:
    """The queue runs a daily task at the time of day of its last run."""
    if row.next_run.time() != at:
        now = timezone.now()
        today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
        row.next_run = today if today > now else today + timedelta(days=1)
        row.save(update_fields=["next_run"])
