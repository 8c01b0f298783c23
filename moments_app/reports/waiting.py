"""Open and failed jobs in groups and lanes, the reasons why they wait, and the state of the engines that they call."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Case, Count, DateTimeField, F, Min, Value, When
from django.db.models.functions import Now

from moments_app.jobs.process import Lane, processes
from moments_app.models import Circuit, EngineCall, Job
from moments_app.models.job import JobQuerySet

DUE = "due"
GROUPED = ("status", "process", "waits_for")
MOST = 20


@dataclass(frozen=True)
class Group:
    """Jobs in the same state.

    Args:
        waits_for: `due` if the jobs wait for a worker, or one of `Job.Held`; blank if they are running or failed.
        since: when the first of them started to wait.
    """

    status: str
    process: str
    waits_for: str
    number: int
    since: datetime | None

    @property
    def lane(self) -> str:
        """The lane of the process; blank if this release has no such process."""
        return _lanes().get(self.process, "")


def waiting(among: JobQuerySet) -> list[Group]:
    """Count open and failed jobs, using one query that reads only these."""
    queued = Job.Status.QUEUED
    waits_for = Case(
        When(status=queued, circuit__isnull=False, then=Value(Job.Held.CIRCUIT)),
        When(status=queued, run_after__lte=Now(), then=Value(DUE)),
        When(status=queued, held_by="", then=Value(Job.Held.BACKOFF)),  # put back by an earlier release
        When(status=queued, then=F("held_by")),
        default=Value(""),
    )
    since = Case(
        When(status=queued, circuit__isnull=False, then=F("circuit__since")),
        When(status=queued, run_after__lte=Now(), then=F("run_after")),
        When(status=queued, held_since=None, then=F("queued_at")),
        When(status=queued, then=F("held_since")),
        output_field=DateTimeField(),
    )
    jobs = among.filter(status__in=[*Job.OPEN, Job.Status.FAILED]).annotate(waits_for=waits_for)
    groups = jobs.values(*GROUPED).annotate(number=Count("*"), since=Min(since)).order_by()
    return [Group(*row) for row in groups.values_list(*GROUPED, "number", "since")]


def _lanes() -> dict[str, str]:
    return {process.name: Lane(process.lane).name.lower() for process in processes()}


@dataclass(frozen=True)
class ProviderState:
    """The state of an engine.

    Args:
        engine: the name of the engine in recorded calls.
        circuits: open circuits of the engine, each with `held`.
        last: the last recorded call; None if there is none.
    """

    engine: str
    circuits: list[Any]
    last: EngineCall | None

    @property
    def state(self) -> str:
        if self.circuits:
            return "open"
        if self.last is None:
            return "not called yet"
        return "answered" if self.last.ok else "failed"


@dataclass(frozen=True)
class LaneState:
    """A lane of work: its due, running, waiting and failed jobs, and since when the oldest due job has been waiting."""

    name: str
    due: int
    running: int
    waiting: int
    failed: int
    since: datetime | None


def provider_states() -> list[ProviderState]:
    """Return the states of configured engines and of engines with open circuits, using two queries."""
    is_open: dict[str, list[Any]] = {}
    for circuit in Circuit.objects.open().with_held().order_by("engine", "work")[:MOST]:
        is_open.setdefault(circuit.engine, []).append(circuit)
    names = sorted({*_configured(), *is_open})[:MOST]
    last = {call.engine: call for call in _last_calls(names)}
    return [ProviderState(name, is_open.get(name, []), last.get(name)) for name in names]


def _configured() -> set[str]:
    engine = settings.ENGINE
    models = {engine.model, engine.model_for_speed} if engine.uses_model else set()
    embedding = {settings.EMBEDDING.model} if settings.EMBEDDING.has_endpoint else set()
    return {f"openai:{model}" for model in models | embedding}


def _last_calls(names: Iterable[str]) -> Iterable[EngineCall]:
    """Return the newest call of each engine. Uses an index."""
    each = [EngineCall.objects.filter(engine=name).order_by("-created_at", "-id")[:1] for name in names]
    return each[0].union(*each[1:], all=True) if each else ()


def lane_states() -> list[LaneState]:
    """Return the lanes, most urgent first, using one query."""
    groups = waiting(Job.objects.all())
    return [_lane(lane.title, [group for group in groups if group.lane == lane.name.lower()]) for lane in Lane]


def _lane(name: str, groups: list[Any]) -> LaneState:
    def number(status: str, *, due: bool | None = None) -> int:
        return sum(g.number for g in groups if g.status == status and due in (None, g.waits_for == DUE))

    since = min((group.since for group in groups if group.waits_for == DUE and group.since), default=None)
    queued = Job.Status.QUEUED
    return LaneState(
        name,
        number(queued, due=True),
        number(Job.Status.PROCESSING),
        number(queued, due=False),
        number(Job.Status.FAILED),
        since,
    )
