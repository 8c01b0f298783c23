"""The state of the site in the event log: up, degraded or down, with the reasons and the start time.

Each change of the state is logged once, even with several watchdogs. If a watchdog dies before it has sent the
notification, another one can send it. `checks` determines the state, and `watchdog` decides when to log a change.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from memoryproject.database.timeouts import DatabaseUnavailable, database
from sessions_app.clock import TIMES_CORRECTED, database_now, write_event
from sessions_app.database.deferred import wake_workers
from sessions_app.models import Event

CHANGED, NOTIFIED = "state_changed", "state_told"
RESTARTED, PROVIDERS_CHECKED = "process_restarted", "providers_checked"
ACTOR = "watch"
DAY = timedelta(days=1)
RESTARTS_WITHIN, RESTARTS_READ = timedelta(minutes=10), 30
# how long the site counts as degraded after times in the future were corrected
CORRECTION_SHOWN = timedelta(minutes=10)


class State(StrEnum):
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"


def refused_providers() -> list[str]:
    return recent_events(1).refused


def _newest(kind: str) -> QuerySet[Event]:
    """Return events of a kind, newest first, with their `age`.

    The age is computed with the database's clock, because the clocks of hosts may differ.
    """
    return Event.objects.filter(type=kind).annotate(age=Now() - F("created_at")).order_by("-id")


def record_refused_providers(refused: list[str]) -> None:
    if refused != refused_providers():
        write_event(PROVIDERS_CHECKED, ACTOR, {"refused": refused})


def record_restart(sentence: str, actor: str) -> None:
    """Log that a process died and is being restarted. If the database is down, log nothing."""
    with suppress(DatabaseUnavailable), database():
        write_event(RESTARTED, actor, {"told": sentence})
        wake_workers()  # workers take over the job of the dead process


def restarts(within: timedelta) -> QuerySet[Event]:
    return _newest(RESTARTED).filter(created_at__gte=Now() - within)


# --- changes ---


@dataclass(frozen=True)
class Change:
    """A change of the state. Before it is recorded, `pk` is None.

    Args:
        previous: The old state. Blank for the first change.
        since: When the new state was first observed.
    """

    state: State
    previous: str
    since: datetime
    reasons: list[str] = field(default_factory=list)
    pk: int | None = None
    recorded_at: datetime | None = None

    @classmethod
    def of(cls, event: Event) -> "Change":
        payload = event.payload
        since = datetime.fromisoformat(payload["since"])
        return cls(State(payload["state"]), payload["previous"], since, payload["reasons"], event.pk, event.created_at)

    def as_dict(self) -> dict[str, Any]:
        state, since = str(self.state), self.since.isoformat(timespec="milliseconds")
        return {"state": state, "previous": self.previous, "since": since, "reasons": self.reasons}

    @property
    def is_news(self) -> bool:
        """Return whether operators need to know of the change. The first start of a new site is not news."""
        return self.state != State.UP or self.previous != ""

    def age(self, now: datetime) -> float:
        return (now - self.recorded_at).total_seconds() if self.recorded_at else 0.0

    @transaction.atomic
    def record(self) -> "Change | None":
        """Log the change as an event. Return None if a watchdog has already logged it, or a later change.

        A logged change dated in the future doesn't count as later. Otherwise, it would suppress all new changes.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('state', 0))")
        last = last_change()
        if last and (last.state == self.state or self.since < last.since <= database_now()):
            return None
        facts = replace(self, previous=str(last.state) if last else "").as_dict()
        return Change.of(write_event(CHANGED, ACTOR, facts))

    def record_notified(self) -> None:
        write_event(NOTIFIED, ACTOR, {"state_changed": self.pk})

    @property
    def was_notified(self) -> bool:
        last = _newest(NOTIFIED).first()
        return last is not None and last.payload.get("state_changed") == self.pk


def last_changes(number: int) -> list[Change]:
    return [Change.of(event) for event in _newest(CHANGED)[:number]]


def last_change() -> Change | None:
    return next(iter(last_changes(1)), None)


@dataclass(frozen=True)
class RecentEvents:
    """The latest events about the state, newest first.

    Args:
        restarts: Restarts of processes within a day, at most `RESTARTS_READ`, each with `age`.
        times_corrected: The last correction of times in the future, if it is recent.
        refused: A sentence for each provider whose check fails.
    """

    changes: list[Change]
    restarts: list[Any]
    times_corrected: list[Event]
    refused: list[str]


def recent_events(number: int) -> RecentEvents:
    """Return the latest events, with `number` changes, in one query."""
    times_corrected = _newest(TIMES_CORRECTED).filter(created_at__gte=Now() - CORRECTION_SHOWN)[:1]
    parts = restarts(DAY)[:RESTARTS_READ], times_corrected, _newest(PROVIDERS_CHECKED)[:1]
    events = list(_newest(CHANGED)[:number].union(*parts, all=True).order_by("-id"))

    def of(kind: str) -> list[Any]:
        return [event for event in events if event.type == kind]

    refused = [sentence for event in of(PROVIDERS_CHECKED) for sentence in event.payload["refused"]]
    return RecentEvents([Change.of(event) for event in of(CHANGED)], of(RESTARTED), of(TIMES_CORRECTED), refused)
