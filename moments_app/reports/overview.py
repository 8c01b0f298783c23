"""The figures that operators see first: open and failed work, and recent work.

Each query uses an index or reads a limited number of rows. No query reads whole transcripts. Turns and tokens come from
the sessions' counters, and daily counts from index scans over the requested days.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from statistics import median, quantiles
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import (
    Case,
    Count,
    DateTimeField,
    F,
    Max,
    Min,
    Model,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Now, TruncDate
from django.utils import timezone

from moments_app.jobs.process import Lane, processes
from moments_app.models import Circuit, ContextUsage, EngineCall, Job, Moment
from moments_app.models.job import TASK, JobQuerySet, silent_since
from moments_app.recall.index_words import IndexArchived
from moments_app.reports.cost import Usage, usage_by
from sessions_app.limited_operators import scope_key, unlimited
from sessions_app.models import Message, Session
from sessions_app.models.session import LIVE

DUE = "due"
GROUP_COLUMNS = ("status", "process", "waits_for")
MAX_ENGINES = 20
DAYS = 30
WORKER_SILENT = timedelta(minutes=3)  # longer than a minute, because the most frequent schedule runs once per minute
FEW_ROWS = 10_000  # maximum rows of a table to count, which takes a few milliseconds
# Returns the database's estimate of the number of rows, or the exact number if the estimate is low.
_ESTIMATE_SQL = """
SELECT CASE WHEN reltuples > %s THEN reltuples::bigint ELSE (SELECT count(*) FROM {table}) END
FROM pg_class WHERE oid = %s::regclass
"""
_WAITS_SQL = """
SELECT lane, (finished_at AT TIME ZONE 'UTC')::date AS day, count(*),
    percentile_cont(0.95) WITHIN GROUP (ORDER BY GREATEST(EXTRACT(EPOCH FROM started_at - run_after), 0))
FROM moments_app_job JOIN unnest(%s::text[], %s::integer[]) AS lane_of (process, lane) USING (process)
WHERE status = 'completed' AND finished_at >= %s
GROUP BY GROUPING SETS ((lane, day), (lane)) ORDER BY lane, day
"""
BUILDS_OF_MOMENTS = 1_000  # number of newest moments for which to measure the duration of builds


# --- open and failed work ---


@dataclass(frozen=True)
class Backlog:
    """The numbers of open and failed jobs, and the last heartbeat of a worker."""

    due: int
    oldest_due: datetime | None  # when the oldest due job started to wait
    later: int  # jobs that wait for a backoff, an engine or another day
    running: int
    stuck: int  # running jobs without a recent heartbeat
    failed: int
    unexplained: int  # failed jobs without a `FailureGroup`
    upgrading: int  # open jobs that make archived turns of an earlier release searchable
    archives_done: int  # number of archives that the running `upgrading` jobs have finished
    archives: int
    worker_seen_at: datetime | None

    @property
    def is_silent(self) -> bool:
        return self.worker_seen_at is None or timezone.now() - self.worker_seen_at > WORKER_SILENT


def backlog() -> Backlog:
    now = timezone.now()
    queued, running = Q(status=Job.Status.QUEUED), Q(status=Job.Status.PROCESSING)
    due = queued & Q(circuit=None, run_after__lte=now)
    upgrading = Q(process=IndexArchived.name) & (queued | running)
    found = Job.objects.filter(status__in=[*Job.OPEN, Job.Status.FAILED]).aggregate(
        due=Count("pk", filter=due),
        oldest_due=Min("run_after", filter=due),
        later=Count("pk", filter=queued & ~Q(circuit=None, run_after__lte=now)),
        running=Count("pk", filter=running),
        stuck=Count("pk", filter=running & Q(heartbeat_at__lt=silent_since())),
        failed=Count("pk", filter=Q(status=Job.Status.FAILED)),
        unexplained=Count("pk", filter=Q(status=Job.Status.FAILED, failure=None)),
        upgrading=Count("pk", filter=upgrading),
        archives_done=Sum("progress_done", filter=upgrading & running, default=0),
        archives=Sum("progress_total", filter=upgrading & running, default=0),
        beat=Max("heartbeat_at", filter=running),
    )
    signs = [sign for sign in (found.pop("beat"), _last_scheduled_run()) if sign]
    return Backlog(**found, worker_seen_at=max(signs, default=None))


def _last_scheduled_run() -> datetime | None:
    with unlimited():  # scheduled tasks are site-wide
        ended: datetime | None = Job.objects.filter(process=TASK).aggregate(ended=Max("finished_at"))["ended"]
    return ended


@dataclass(frozen=True)
class JobGroup:
    """Jobs in the same state."""

    status: str
    process: str
    waits_for: str  # `due`, or one of `Job.Held`; blank if the jobs are running or failed
    number: int
    since: datetime | None  # when the first of them started to wait

    @property
    def lane(self) -> str:
        """The lane of the process; blank if this release has no such process."""
        return next((process.lane.name.lower() for process in processes() if process.name == self.process), "")


def job_groups(among: JobQuerySet) -> list[JobGroup]:
    """Count open and failed jobs, using one query that reads only these."""
    queued = Job.Status.QUEUED
    waits_for = Case(
        When(status=queued, circuit__isnull=False, then=Value(Job.Held.CIRCUIT)),
        When(status=queued, run_after__lte=Now(), then=Value(DUE)),
        When(status=queued, held_by="", then=Value(Job.Held.BACKOFF)),  # queued again by an earlier release
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
    groups = jobs.values(*GROUP_COLUMNS).annotate(number=Count("*"), since=Min(since)).order_by()
    return [JobGroup(*row) for row in groups.values_list(*GROUP_COLUMNS, "number", "since")]


@dataclass(frozen=True)
class ProviderState:
    engine: str
    circuits: list[Any]  # the engine's open circuits, annotated by `with_held`
    last: EngineCall | None  # the last recorded call

    @property
    def state(self) -> str:
        if self.circuits:
            return "open"
        if self.last is None:
            return "not called yet"
        return "answered" if self.last.ok else "failed"


@dataclass(frozen=True)
class LaneState:
    """The numbers of jobs in a lane."""

    name: str
    due: int
    running: int
    waiting: int
    failed: int
    since: datetime | None  # when the oldest due job started to wait


def provider_states() -> list[ProviderState]:
    """Return the states of configured engines and of engines with open circuits, using two queries."""
    is_open: dict[str, list[Any]] = {}
    for circuit in Circuit.objects.open().with_held().order_by("engine", "work")[:MAX_ENGINES]:
        is_open.setdefault(circuit.engine, []).append(circuit)
    names = sorted({*_configured(), *is_open})[:MAX_ENGINES]
    last = {call.engine: call for call in _last_calls(names)}
    return [ProviderState(name, is_open.get(name, []), last.get(name)) for name in names]


def _configured() -> set[str]:
    engine = settings.ENGINE
    models = {engine.model, engine.model_for_speed} if engine.uses_model else set()
    embedding = {settings.EMBEDDING.model} if settings.EMBEDDING.has_endpoint else set()
    return {f"openai:{model}" for model in models | embedding}


def _last_calls(names: Iterable[str]) -> Iterable[EngineCall]:
    each = [EngineCall.objects.filter(engine=name).order_by("-created_at", "-id")[:1] for name in names]
    return each[0].union(*each[1:], all=True) if each else ()


def lane_states() -> list[LaneState]:
    """Return the lanes, most urgent first, using one query."""
    groups = job_groups(Job.objects.all())
    return [_lane(lane.title, [group for group in groups if group.lane == lane.name.lower()]) for lane in Lane]


def _lane(name: str, groups: list[JobGroup]) -> LaneState:
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


# --- recent work ---


@dataclass
class Day:
    """Figures of one day in UTC."""

    date: date
    sessions: int = 0
    turns: int = 0
    moments: int = 0
    used: Usage = field(default_factory=Usage)
    contexts: int = 0
    context_tokens: int = 0
    transcript_tokens: int = 0  # tokens that whole transcripts would have used instead of contexts
    failures: Counter[str] = field(default_factory=Counter)  # failed calls by kind


@dataclass(frozen=True)
class Builds:
    """For the latest builds, the seconds from reaching the threshold until the moments were stored."""

    number: int
    median: float
    p95: float


@dataclass(frozen=True)
class QueueTimes:
    """How long the jobs of a lane waited for a worker after they were due.

    Covers jobs completed in the last `DAYS` days.
    """

    number: int  # number of completed jobs
    p95: float  # seconds within which 95% of them started
    p95_by_day: Mapping[date, float]  # the same for the jobs completed on each day


@dataclass(frozen=True)
class Activity:
    """Recent work, and the totals of all sessions."""

    made_at: datetime
    days: list[Day]  # the last `DAYS`, today last
    sessions: int
    turns: int
    tokens: int
    live_turns: int
    live_tokens: int
    moments: int  # an estimate by the database
    builds: Builds | None
    waits: Mapping[Lane, QueueTimes]  # lanes that completed no job are missing

    @property
    def today(self) -> Day:
        return self.days[-1]

    @property
    def total(self) -> Day:
        total = Day(self.days[0].date)
        for day in self.days:
            for name in vars(day).keys() - {"date"}:
                setattr(total, name, getattr(total, name) + getattr(day, name))
        return total

    @property
    def compacted(self) -> float | None:
        """The share of tokens outside live windows. Models receive memory instead of these."""
        return 1 - self.live_tokens / self.tokens if self.tokens else None


def activity() -> Activity:
    now = timezone.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight - timedelta(days=DAYS - 1)
    days = {since.date() + timedelta(days=number): Day(since.date() + timedelta(days=number)) for number in range(DAYS)}
    sessions, turns, moments = (
        _by_day(name, rows, since, column)
        for name, rows, column in (
            ("sessions", Session.objects.all(), "created_at"),
            ("turns", Message.objects.all_turns(), "arrived_at"),
            ("moments", Moment.objects.all(), "created_at"),
        )
    )
    contexts = (_contexts_by_day(name, since) for name in ("contexts", "context_tokens", "transcript_tokens"))
    for name, day, number in sessions.union(turns, moments, *contexts, all=True):
        if day in days:  # the next day may have started in the meantime
            setattr(days[day], name, number)
    _count_calls(days, since)
    return Activity(
        made_at=now,
        days=list(days.values()),
        moments=estimated_rows(Moment),
        builds=_builds(),
        waits=_waits(since),
        **_counters(),
    )


def _by_day(name: str, rows: QuerySet[Any], since: datetime, column: str) -> QuerySet[Any]:
    """Return (name, day, number) for each day. `column` has the time of creation."""
    days = rows.filter(**{f"{column}__gte": since}).annotate(day=TruncDate(column), what=Value(name)).order_by()
    counts: QuerySet[Any] = days.values("what", "day").annotate(number=Count("pk"))
    return counts.values_list("what", "day", "number")


def _contexts_by_day(name: str, since: datetime) -> QuerySet[Any]:
    rows = ContextUsage.objects.filter(day__gte=since.date()).annotate(what=Value(name)).order_by()
    return rows.values("what", "day").annotate(number=Sum(name)).values_list("what", "day", "number")


def _count_calls(days: dict[date, Day], since: datetime) -> None:
    calls = EngineCall.objects.without_parts().filter(created_at__gte=since).annotate(day=TruncDate("created_at"))
    for day, kind, used in usage_by(calls, "day", "error_kind"):
        if day in days:  # the next day may have started in the meantime
            days[day].used += used
            days[day].failures.update({kind: used.calls} if kind else {})


def _waits(since: datetime) -> dict[Lane, QueueTimes]:
    lanes = {process.name: process.lane for process in processes()} | {TASK: Lane.SCHEDULED}
    with connection.cursor() as cursor:
        cursor.execute(_WAITS_SQL, [list(lanes), list(lanes.values()), since])
        rows = cursor.fetchall()
    return {
        Lane(lane): QueueTimes(number, p95, {day: of_day for of, day, _, of_day in rows if of == lane and day})
        for lane, whole, number, p95 in rows
        if whole is None
    }


def _counters() -> dict[str, int]:
    return Session.objects.aggregate(
        sessions=Count("pk"),
        turns=Sum("message_count", default=0),
        tokens=Sum("total_tokens", default=0),
        live_turns=Sum(LIVE, default=0),
        live_tokens=Sum("live_tokens", default=0),
    )


def _builds() -> Builds | None:
    newest = Moment.objects.filter(job__isnull=False).order_by("-id").values("job")[:BUILDS_OF_MOMENTS]
    by_threshold = Job.objects.filter(pk__in=newest, force=False, status=Job.Status.COMPLETED)
    took = by_threshold.values_list(F("finished_at") - F("queued_at"), flat=True)
    seconds = [each.total_seconds() for each in took]
    if not seconds:
        return None
    p95 = quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    return Builds(len(seconds), median(seconds), p95)


def estimated_rows(model: type[Model]) -> int:
    """Return the number of rows in a table, as estimated by the database.

    Count the rows if the table is small, because estimates lag behind, or if the operator has limited access.
    """
    if scope_key():
        return model._default_manager.count()
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(_ESTIMATE_SQL.format(table=connection.ops.quote_name(table)), [FEW_ROWS, table])
        [number] = cursor.fetchone() or [0]
    return int(number)
