"""The database's clock, which all hosts use to compare times, and the correction of times that are ahead of it.

A host with a wrong clock, or a manual edit, can date a heartbeat or a lease in the future. No worker would take over
before that time. `put_back` finds such rows, sets them to the present and reports them.
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

from sessions_app.database.statement_timeouts import set_local
from sessions_app.models import Event

PUT_BACK = "times_put_back"  # in the event log
ACTOR = "clock"
TOLERANCE = timedelta(seconds=10)  # how far the clocks of hosts may differ
AT_ONCE = 1_000  # maximum rows of a table per call; the next call continues
LOCK_SECONDS = 0.2  # how long to wait for a locked row

logger = structlog.get_logger(__name__)


def database_now() -> datetime:
    """Return the time of the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        found: tuple[datetime] = cursor.fetchone()
    return found[0]


def write_event(kind: str, actor: str, payload: dict[str, Any]) -> Event:
    """Write an event dated by the database's clock, for events whose times are compared across hosts."""
    event = Event.objects.create(type=kind, actor=actor, payload=payload)
    event.created_at = database_now()
    event.save(update_fields=["created_at"])
    return event


@dataclass(frozen=True)
class Times:
    """A column whose times decide when work is done.

    Args:
        ahead: How far in the future a correct time may be.
        where: Limits the check to rows with these values. In other rows the time decides nothing.
    """

    model: type[Model]
    column: str
    ahead: timedelta = timedelta(0)
    where: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.model._meta.label}.{self.column}"

    def wrong(self) -> "QuerySet[Any]":
        """Return the rows that are too far ahead."""
        limit = Now() + (self.ahead + TOLERANCE)
        return self.model._base_manager.filter(**{f"{self.column}__gt": limit}, **self.where)

    def put_back(self) -> "PutBack | None":
        """Set times that are too far ahead to the present. If one of the rows is locked, leave all to the next call."""
        found = dict(self.wrong().order_by().values_list("pk", self.column)[:AT_ONCE])
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(set_local({"lock_timeout": LOCK_SECONDS}))
                rows = self.wrong().filter(pk__in=found).update(**{self.column: Now()})
        except OperationalError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                return None
            raise
        return PutBack(str(self), rows, max(found.values())) if rows else None


@dataclass(frozen=True)
class PutBack:
    """The correction of a column's times.

    Args:
        column: `app.Model.column`.
        furthest: the latest of their former times.
    """

    column: str
    rows: int
    furthest: datetime

    def __str__(self) -> str:
        rows = "1 timestamp" if self.rows == 1 else f"{self.rows:,} timestamps"
        return f"{rows} in {self.column}, up to {self.furthest:%Y-%m-%d %H:%M} UTC"


def with_wrong(columns: Iterable[Times]) -> list[Times]:
    """Return the columns that have times too far ahead, with one statement."""
    asked = list(columns)
    each = [
        times.wrong().order_by().annotate(number=Value(number)).values_list("number")[:1]
        for number, times in enumerate(asked)
    ]
    return [asked[number] for (number,) in each[0].union(*each[1:], all=True)] if each else []


def put_back(columns: Iterable[Times]) -> list[PutBack]:
    """Set times that are too far ahead to the present, and report them."""
    done = [each for times in with_wrong(columns) if (each := times.put_back())]
    report(done)
    return done


def report(done: Sequence[PutBack]) -> None:
    """Write corrections, if any, into the log and the event log."""
    columns = [{"column": each.column, "rows": each.rows, "furthest": each.furthest.isoformat()} for each in done]
    if columns:
        told = "; ".join(map(str, done))
        logger.warning("times in the future were put back", columns=columns)
        write_event(PUT_BACK, ACTOR, {"told": told, "columns": columns})
