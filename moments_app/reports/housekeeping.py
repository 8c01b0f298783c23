"""`housekeeping`: records of work that nothing leads to are deleted once they are old.

Jobs that came to nothing or only kept indexes up to date, calls of engines, and the queue's own records of errors. Jobs
that made something stay: a moment names the job it came from. Lines that were served long ago are not expected back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone
from django_q.models import Task

from moments_app.models import EngineCall, Job, ServedLine
from moments_app.recall import count_words, embed

BATCH = 1_000
UPKEEP = (count_words.NAME, embed.NAME)


@dataclass(frozen=True)
class Tidied:
    """How many of each were deleted."""

    jobs: int = 0
    engine_calls: int = 0
    task_errors: int = 0
    served_lines: int = 0


def housekeeping(*, dry_run: bool = False) -> Tidied:
    """Deletes what ended more than `JOBS__KEEP_DAYS` ago, and lines that were not served for `KEPT`.

    Args:
        dry_run: only count.
    """
    before = timezone.now() - timedelta(days=settings.JOBS.keep_days)
    return Tidied(*(rows.count() if dry_run else _delete(rows) for rows in _old(before)))


def _old(before: datetime) -> Iterator[QuerySet[Any]]:
    done = Q(status=Job.Status.COMPLETED, process__in=UPKEEP)
    yield Job.objects.filter(done | Q(status=Job.Status.SKIPPED), finished_at__lt=before)
    yield EngineCall.objects.filter(created_at__lt=before)
    yield Task.objects.filter(stopped__lt=before)
    yield ServedLine.objects.expired()


def _delete(rows: QuerySet[Any]) -> int:
    """In batches, each a transaction of its own."""
    deleted = 0
    while batch := list(rows.values_list("pk", flat=True)[:BATCH]):
        rows.filter(pk__in=batch).delete()
        deleted += len(batch)
    return deleted
