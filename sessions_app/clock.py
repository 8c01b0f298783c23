"""Correct stored times that are in the future according to the database's clock.

All hosts compare times with the database's clock. If a host's clock is wrong, it can store a heartbeat or a lease with
a time in the future, and no other worker would take over the work before that time. `correct_times` sets such times to
the present and reports them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import OperationalError, connection, transaction
from django.db.models import Model, Value
from django.db.models.functions import Now
from django.db.models.query import QuerySet
from psycopg.errors import LockNotAvailable

from sessions_app.database.transactions import set_local
from sessions_app.models import Event

TIMES_CORRECTED = "times_put_back"  # event type
ACTOR = "clock"
TOLERANCE = timedelta(seconds=10)  # maximum difference between the clocks of hosts
MAX_ROWS = 1_000  # maximum rows of a table per call; the next call continues
LOCK_SECONDS = 0.2  # seconds to wait for a locked row

logger = structlog.get_logger(__name__)


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        found: tuple[datetime] = cursor.fetchone()
    return found[0]


def write_event(kind: str, actor: str, payload: dict[str, Any]) -> Event:
    """Write an event with the time of the database, so its time can be compared with those of other hosts."""
    event = Event.objects.create(type=kind, actor=actor, payload=payload)
    event.created_at = database_now()
    event.save(update_fields=["created_at"])
    return event


@dataclass(frozen=True)
class TimeColumn:
    """A column with times that determine when work is due."""

    model: type[Model]
    column: str
    ahead: timedelta = timedelta(0)  # how far in the future a time may be
    where: Mapping[str, Any] = field(default_factory=dict)  # condition for rows in which the time has an effect

    def __str__(self) -> str:
        return f"{self.model._meta.label}.{self.column}"

    def future_rows(self) -> "QuerySet[Any]":
        limit = Now() + (self.ahead + TOLERANCE)
        return self.model._base_manager.filter(**{f"{self.column}__gt": limit}, **self.where)

    def correct(self) -> "TimeCorrection | None":
        """Set times that are too far in the future to the current time.

        If a row is locked, change nothing; the next call retries.
        """
        found = dict(self.future_rows().order_by().values_list("pk", self.column)[:MAX_ROWS])
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(set_local({"lock_timeout": LOCK_SECONDS}))
                rows = self.future_rows().filter(pk__in=found).update(**{self.column: Now()})
        except OperationalError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                return None
            raise
        return TimeCorrection(str(self), rows, max(found.values())) if rows else None


@dataclass(frozen=True)
class TimeCorrection:
    """The result of correcting the times in a column."""

    column: str  # as `app.Model.column`
    rows: int
    furthest: datetime  # the latest of the corrected times

    def __str__(self) -> str:
        rows = "1 timestamp" if self.rows == 1 else f"{self.rows:,} timestamps"
        return f"{rows} in {self.column}, up to {self.furthest:%Y-%m-%d %H:%M} UTC"


def columns_with_future_times(columns: Iterable[TimeColumn]) -> list[TimeColumn]:
    """Return the columns with times that are too far in the future. Uses one statement."""
    asked = list(columns)
    each = [
        times.future_rows().order_by().annotate(number=Value(number)).values_list("number")[:1]
        for number, times in enumerate(asked)
    ]
    return [asked[number] for (number,) in each[0].union(*each[1:], all=True)] if each else []


def correct_times(columns: Iterable[TimeColumn]) -> list[TimeCorrection]:
    """Set times that are too far in the future to the current time. Report the corrections."""
    done = [each for times in columns_with_future_times(columns) if (each := times.correct())]
    report(done)
    return done


def report(done: Sequence[TimeCorrection]) -> None:
    columns = [{"column": each.column, "rows": each.rows, "furthest": each.furthest.isoformat()} for each in done]
    if columns:
        logger.warning("times in the future were put back", columns=columns)
        write_event(TIMES_CORRECTED, ACTOR, {"told": "; ".join(map(str, done)), "columns": columns})
