"""`provider_states` and `lane_states`: the state of the engines in use, and of the lanes whose work calls them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from moments_app.jobs.process import Lane
from moments_app.models import Circuit, EngineCall, Job
from moments_app.reports.waiting import DUE, waiting

MOST = 20


@dataclass(frozen=True)
class ProviderState:
    """The state of an engine.

    Args:
        engine: its name in recorded calls.
        circuits: open circuits of its kinds of work, each with `held`.
        last: its last call; None: none is recorded.
    """

    engine: str
    circuits: list[Any]
    last: EngineCall | None

    @property
    def state(self) -> str:
        """A word for its state."""
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
    """Return the configured engines, and those with open circuits, using two statements."""
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
    """Return the lanes, most urgent first, using one statement."""
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
