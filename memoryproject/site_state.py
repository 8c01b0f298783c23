"""The state of the site: up, degraded or down, why, and since when.

`judge` says how things stand now. A change of the state is an event in the log, so that everybody reads the same and an
alarm that could not be sent survives its process; `watch` decides when one is written.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from memoryproject import health
from memoryproject.patience import Away, database, limited
from moments_app.models import Circuit, Job
from moments_app.reports.waiting import waiting
from sessions_app.clock import PUT_BACK, database_now, write_event
from sessions_app.models import Event

CHANGED, TOLD = "state_changed", "state_told"
RESTARTED, PROVIDERS_CHECKED = "process_restarted", "providers_checked"
ACTOR = "watch"
MANY_RESTARTS, RESTARTS_WITHIN = 3, timedelta(minutes=10)
PUT_BACK_TOLD = timedelta(minutes=10)  # for which times that were put back degrade the site


class State(StrEnum):
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"


@dataclass(frozen=True)
class Verdict:
    """How things stand.

    Args:
        state: of the site.
        reasons: a sentence each; none when it is up.
    """

    state: State
    reasons: list[str]


def judge() -> Verdict:
    """Judge by the checks of readiness, and by what does its work late or not at all."""
    with limited():
        checked = health.checks()
    checked = health.with_request(checked)
    broken = [checked[name] for name in ("database", "migrations") if checked[name] != health.OK]
    if broken:
        return Verdict(State.DOWN, broken)
    late = [checked["queue"]] if checked["queue"] != health.OK else []
    with limited():
        late += [sentence for reason in REASONS for sentence in reason()]
    return Verdict(State.DEGRADED if late else State.UP, late)


def _held() -> Iterator[str]:
    """Yield what holds jobs; a back-off or another job only when that lasts."""
    now, patience = timezone.now(), timedelta(seconds=settings.JOBS.queue_age_alarm_seconds)
    groups = waiting(Job.objects.all())
    for kind in Job.Held:
        held = [group for group in groups if group.waits_for == kind]
        since = min((group.since for group in held if group.since), default=now)
        if held and (kind in (Job.Held.CIRCUIT, Job.Held.BUDGET) or now - since > patience):
            number = sum(group.number for group in held)
            jobs = "1 job waits" if number == 1 else f"{number:,} jobs wait"
            yield f"{jobs} for {kind.label}, since {since:%H:%M:%S} UTC."


def _circuits() -> Iterator[str]:
    yield from (circuit.why for circuit in Circuit.objects.open())


def refused_providers() -> list[str]:
    """Return a sentence for each provider that refused the key or address when it was asked last."""
    return _refused(_newest(PROVIDERS_CHECKED).first())


def _refused(event: Event | None) -> list[str]:
    return event.payload["refused"] if event else []


def _newest(kind: str) -> QuerySet[Event]:
    return Event.objects.filter(type=kind).order_by("-id")  # by no clock: several hosts write these


def note_refused_providers(refused: list[str]) -> None:
    """Write down which providers refuse, when that is news."""
    if refused != refused_providers():
        write_event(PROVIDERS_CHECKED, ACTOR, {"refused": refused})


def note_restart(sentence: str, actor: str) -> None:
    """Write down that a process died and is started again; a database that is away hears nothing of it."""
    with suppress(Away), database():
        write_event(RESTARTED, actor, {"told": sentence})


def restarts(within: timedelta) -> QuerySet[Event]:
    """Return the deaths of processes that were started again, newest first."""
    return _newest(RESTARTED).filter(created_at__gte=Now() - within)


def _restarts() -> Iterator[str]:
    told = [event.payload.get("told", "") for event in restarts(RESTARTS_WITHIN)[: 10 * MANY_RESTARTS]]
    if len(told) >= MANY_RESTARTS:
        yield f"Processes died {len(told)} times within {RESTARTS_WITHIN.seconds // 60} minutes, the last: {told[0]}"


def _put_back() -> Iterator[str]:
    recent = _newest(PUT_BACK).filter(created_at__gte=Now() - PUT_BACK_TOLD)
    if last := recent.first():
        yield f"Times in the future were put back: {last.payload['told']}. Look at the clocks of all hosts."


# What degrades a site; each yields sentences.
REASONS: list[Callable[[], Iterable[str]]] = [_held, _circuits, refused_providers, _restarts, _put_back]


# --- changes ---


@dataclass(frozen=True)
class Change:
    """A change of the state.

    Args:
        state: from now on.
        previous: before it; blank for the first.
        since: when things began to be so.
        reasons: a sentence each.
        pk: of its event; None before it is recorded.
        recorded_at: when that was.
    """

    state: State
    previous: str
    since: datetime
    reasons: list[str] = field(default_factory=list)
    pk: int | None = None
    recorded_at: datetime | None = None

    @classmethod
    def of(cls, event: Event) -> "Change":
        """Return what an event tells."""
        told = event.payload
        since = datetime.fromisoformat(told["since"])
        return cls(State(told["state"]), told["previous"], since, told["reasons"], event.pk, event.created_at)

    def facts(self) -> dict[str, Any]:
        """Return what is told of it, as JSON takes it."""
        state, since = str(self.state), self.since.isoformat(timespec="milliseconds")
        return {"state": state, "previous": self.previous, "since": since, "reasons": self.reasons}

    def age(self, now: datetime) -> float:
        """Return the seconds since it was recorded."""
        return (now - self.recorded_at).total_seconds() if self.recorded_at else 0.0

    @transaction.atomic
    def record(self) -> "Change | None":
        """Write it into the event log; None when another watch has written the same, or something later.

        A last change that is dated in the future is no later one: it must not silence those that follow.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('state', 0))")
        last = last_change()
        if last and (last.state == self.state or self.since < last.since <= database_now()):
            return None
        facts = replace(self, previous=str(last.state) if last else "").facts()
        return Change.of(write_event(CHANGED, ACTOR, facts))

    def note_told(self) -> None:
        """Record that everybody who is to be told of it was."""
        write_event(TOLD, ACTOR, {"state_changed": self.pk})

    @property
    def was_told(self) -> bool:
        """Tell whether everybody was."""
        last = _newest(TOLD).first()
        return last is not None and last.payload.get("state_changed") == self.pk


def last_changes(number: int) -> list[Change]:
    """Return the latest changes, newest first."""
    return [Change.of(event) for event in _newest(CHANGED)[:number]]


def last_change() -> Change | None:
    """Return the change that led to the state there is."""
    return next(iter(last_changes(1)), None)


@dataclass(frozen=True)
class Recently:
    """What the log says of late, each newest first.

    Args:
        changes: of the state.
        restarts: processes that died within a day.
        refused: a sentence for each provider that refuses the key or address.
    """

    changes: list[Change]
    restarts: list[Event]
    refused: list[str]


def recently(number: int) -> Recently:
    """Return so many of each, by one statement."""
    parts = restarts(timedelta(days=1))[:number], _newest(PROVIDERS_CHECKED)[:1]
    events = list(_newest(CHANGED)[:number].union(*parts, all=True).order_by("-id"))

    def of(kind: str) -> list[Event]:
        return [event for event in events if event.type == kind]

    refused = _refused(next(iter(of(PROVIDERS_CHECKED)), None))
    return Recently([Change.of(event) for event in of(CHANGED)], of(RESTARTED), refused)
