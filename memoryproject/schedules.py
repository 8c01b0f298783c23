"""What runs by itself, and how often. `migrate` registers this table with the queue, without duplicates."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings


@dataclass(frozen=True)
class Scheduled:
    """One recurring task.

    Args:
        name: also the name of the management command that does the same by hand.
        task: dotted path of the function.
        minutes: between two runs.
    """

    name: str
    task: str
    minutes: int


SCHEDULES = [
    Scheduled("recover_jobs", "moments_app.tasks.recover_jobs", minutes=1),
    Scheduled("count_words", "moments_app.tasks.count_words", minutes=1),
    Scheduled(
        "compact_sessions", "moments_app.tasks.compact_sessions", minutes=settings.SESSION_COMPACTION.interval_minutes
    ),
    Scheduled("form_memories", "moments_app.tasks.form_memories", minutes=10),
    Scheduled("embed", "moments_app.tasks.embed", minutes=10),
    Scheduled("prune_receipts", "moments_app.tasks.prune_receipts", minutes=60),
]


def register_schedules(**_: Any) -> None:
    """Makes the queue's schedules equal to the table; a schedule that an operator paused stays paused."""
    from django_q.models import Schedule

    for entry in SCHEDULES:
        fields = {"func": entry.task, "schedule_type": Schedule.MINUTES, "minutes": entry.minutes}
        Schedule.objects.update_or_create(name=entry.name, defaults=fields)
