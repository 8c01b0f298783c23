"""Delete old, unreferenced records of work, and end plans whose day is over."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from moments_app.jobs.process import processes
from moments_app.models import (
    ContextReceipt,
    EngineCall,
    FailureGroup,
    Job,
    KeptExchange,
    MemoryAtom,
    ServedLine,
    StoredItem,
    WebhookDelivery,
)
from moments_app.streams.timeline import end_past_plans
from sessions_app.models import DailyUsage, Event

BATCH = 1_000
# Old rows of optional packages to delete: names, and functions that return the rows.
EXTRA_TABLES: dict[str, Callable[[], QuerySet[Any]]] = {}


@dataclass(frozen=True)
class HousekeepingResult:
    jobs: int = 0
    engine_calls: int = 0
    failures: int = 0
    failed_calls_texts: int = 0
    served_lines: int = 0
    daily_usage: int = 0
    readings: int = 0
    webhook_deliveries: int = 0
    plans_ended: int = 0
    extra_rows: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "extra_rows"}
        return ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in (own | self.extra_rows).items())


def housekeeping(*, dry_run: bool = False) -> HousekeepingResult:
    """Delete old records of finished work, and end plans whose day has passed."""
    before = timezone.now() - timedelta(days=settings.JOBS.keep_days)
    tidy = QuerySet.count if dry_run else _delete
    extra_rows = {name: tidy(rows()) for name, rows in EXTRA_TABLES.items()}
    plans = MemoryAtom.objects.past_plans().count() if dry_run else end_past_plans()
    return HousekeepingResult(
        **{name: tidy(rows) for name, rows in _old_rows(before).items()},
        plans_ended=plans,
        extra_rows={name: count for name, count in extra_rows.items() if count},
    )


def _old_rows(before: datetime) -> dict[str, QuerySet[Any]]:
    upkeep = [process.name for process in processes() if process.is_upkeep]
    done = Q(status=Job.Status.COMPLETED, process__in=upkeep)  # moments refer to other completed jobs
    return {
        "jobs": Job.objects.filter(done | Q(status=Job.Status.SKIPPED), finished_at__lt=before),
        "engine_calls": EngineCall.objects.filter(created_at__lt=before),
        "failures": FailureGroup.objects.expired(),
        "failed_calls_texts": KeptExchange.objects.expired(),
        "served_lines": ServedLine.objects.expired(),
        "daily_usage": DailyUsage.objects.filter(day__lt=before),
        "readings": Event.objects.expired_readings(),
        "webhook_deliveries": WebhookDelivery.objects.expired(),
    }


def _delete(rows: QuerySet[Any]) -> int:
    """Delete rows in batches, each in a separate transaction, and return their number. Skip locked rows."""
    deleted = 0
    while batch := _delete_batch(rows):
        deleted += batch
    return deleted


@transaction.atomic
def _delete_batch(rows: QuerySet[Any]) -> int:
    # Lock the rows first, to avoid deleting an item that another transaction is storing again.
    free = rows.select_for_update(skip_locked=True, of=("self",))
    batch = list(free.values_list("pk", flat=True)[:BATCH])
    rows.filter(pk__in=batch).only("pk").delete()  # load only the primary key, because other columns may be large
    return len(batch)


@dataclass(frozen=True)
class PruneResult:
    rows: int

    def __str__(self) -> str:
        return f"deleted: {self.rows}"


def prune_receipts(*, dry_run: bool = False) -> PruneResult:
    """Delete served contexts after `MEMORY_CONTEXT__RECEIPT_DAYS` days."""
    expired = ContextReceipt.objects.expired()
    return PruneResult(expired.count() if dry_run else _delete(expired))


def prune_items(*, dry_run: bool = False) -> PruneResult:
    """Delete expired items of the item store."""
    expired = StoredItem.objects.expired()
    return PruneResult(expired.count() if dry_run else _delete(expired))
