"""The database's clock, by which times of different hosts are compared, and times that are ahead of it.

A host whose clock is wrong, or a row that somebody wrote by hand, can date a heartbeat or a lease in the future. Until
then nothing would take over from it. `put_back` finds such rows, sets them to the present and reports them.
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

from sessions_app.limits import set_local
from sessions_app.models import Event

PUT_BACK = "times_put_back"  # in the event log
ACTOR = "clock"
TOLERANCE = timedelta(seconds=10)  # by which the clocks of hosts may differ
AT_ONCE = 1_000  # rows of a table; the others are put back by the next call
LOCK_SECONDS = 0.2  # for which a row in use is waited for

logger = structlog.get_logger(__name__)


def database_now() -> datetime:
    """Return the time of the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        found: tuple[datetime] = cursor.fetchone()
    return found[0]


def write_event(kind: str, actor: str, payload: dict[str, Any]) -> Event:
    """Write an event dated by the database's clock: for events whose times hosts compare."""
    event = Event.objects.create(type=kind, actor=actor, payload=payload)
    event.created_at = database_now()
    event.save(update_fields=["created_at"])
    return event


@dataclass(frozen=True)
class Times:
    """A column of times that decide what is done.

    Args:
        model, column: where they are.
        ahead: the furthest that a right one lies in the future.
        where: equalities that a row's other columns meet if the time decides anything.
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
        """Set rows that are too far ahead to the present; while one of them is in use, leave them to the next call."""
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
    """Rows of a column that were put back.

    Args:
        column: `app.Model.column`.
        rows: how many.
        furthest: the latest time among them.
    """

    column: str
    rows: int
    furthest: datetime

    def __str__(self) -> str:
        rows = "1 time" if self.rows == 1 else f"{self.rows:,} times"
        return f"{rows} in {self.column}, up to {self.furthest:%Y-%m-%d %H:%M} UTC"


def with_wrong(columns: Iterable[Times]) -> list[Times]:
    """Return the columns that have times too far ahead, found by one statement."""
    asked = list(columns)
    each = [
        times.wrong().order_by().annotate(number=Value(number)).values_list("number")[:1]
        for number, times in enumerate(asked)
    ]
    return [asked[number] for (number,) in each[0].union(*each[1:], all=True)] if each else []


def put_back(columns: Iterable[Times]) -> list[PutBack]:
    """Put back the times that are too far ahead, and report them."""
    done = [each for times in with_wrong(columns) if (each := times.put_back())]
    report(done)
    return done


def report(done: Sequence[PutBack]) -> None:
    """Write into the log, and into the event log, which times were put back, if any were."""
    columns = [{"column": each.column, "rows": each.rows, "furthest": each.furthest.isoformat()} for each in done]
    if columns:
        told = "; ".join(map(str, done))
        logger.warning("times in the future were put back", columns=columns)
        write_event(PUT_BACK, ACTOR, {"told": told, "columns": columns})
