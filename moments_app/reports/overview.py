"""`overview`: the figures that operators see first: work that needs attention, and recent work.

Each figure is limited by an index or by a number of rows, and estimates are labeled. No query reads whole transcripts:
turns and tokens come from the sessions' counters, and daily counts from indexes over the requested days.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from statistics import median, quantiles
from typing import Any

from django.db import connection
from django.db.models import Count, F, Max, Min, Model, Q, QuerySet, Sum, Value
from django.db.models.functions import TruncDate
from django.utils import timezone

from moments_app.jobs.process import Lane, processes
from moments_app.models import ContextUsage, EngineCall, Job, Moment
from moments_app.models.job import TASK, silent_since
from moments_app.recall.index_words import IndexArchived
from moments_app.reports.cost import Used, usage_by
from sessions_app.limited_operators import scope_key
from sessions_app.models import Message, Session
from sessions_app.models.session import LIVE

DAYS = 30
WORKER_SILENT = timedelta(minutes=3)  # the most frequent schedule runs every minute
FEW_ROWS = 10_000  # maximum rows of a table to count, which takes a few milliseconds
# Counts rows only if the database's estimate is low.
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
BUILDS_OF_MOMENTS = 1_000  # number of newest moments whose builds to time


# --- now ---


@dataclass(frozen=True)
class Backlog:
    """The open work, and the last sign of life of a worker.

    Args:
        due: the number of due jobs.
        oldest_due: since when the oldest due job has been waiting.
        later: jobs that wait for a backoff, an engine or another day.
        running, stuck: jobs in progress, and the number of these without a recent heartbeat.
        failed: jobs that have used up their attempts.
        unexplained: failed jobs without a `FailureGroup`.
        upgrading: open jobs that make archived turns of an earlier release searchable.
        archives_done, archives: finished and total archives of these jobs that are running.
        worker_seen_at: the time of the last heartbeat of a worker, if any.
    """

    due: int
    oldest_due: datetime | None
    later: int
    running: int
    stuck: int
    failed: int
    unexplained: int
    upgrading: int
    archives_done: int
    archives: int
    worker_seen_at: datetime | None

    @property
    def is_silent(self) -> bool:
        """True if no worker has sent a heartbeat recently."""
        return self.worker_seen_at is None or timezone.now() - self.worker_seen_at > WORKER_SILENT


def work() -> Backlog:
    """Return the waiting, running and failed work, as of now."""
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
    return Backlog(
        **found,
        worker_seen_at=max(signs, default=None),
    )


def _last_scheduled_run() -> datetime | None:
    ended: datetime | None = Job.objects.filter(process=TASK).aggregate(ended=Max("finished_at"))["ended"]
    return ended


# --- the last days ---


@dataclass
class Day:
    """The work of one day, UTC: new turns and new rows.

    Args:
        used: the usage of model calls.
        contexts, context_tokens: served contexts and their tokens.
        transcript_tokens: tokens that the whole transcripts would have used instead.
        failures: the numbers of failed calls by kind.
    """

    date: date
    sessions: int = 0
    turns: int = 0
    moments: int = 0
    used: Used = field(default_factory=Used)
    contexts: int = 0
    context_tokens: int = 0
    transcript_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Builds:
    """The seconds from a reached threshold to the resulting moments, for the latest builds."""

    number: int
    median: float
    p95: float


@dataclass(frozen=True)
class Waits:
    """How long the completed jobs of a lane waited for a worker after they were due.

    Args:
        number: number of jobs in the last `DAYS`.
        p95: seconds within which 95% of them started.
        p95_by_day: the same for each day on which jobs ended.
    """

    number: int
    p95: float
    p95_by_day: Mapping[date, float]


@dataclass(frozen=True)
class Activity:
    """Recent work, and the totals.

    Args:
        made_at: when it was counted.
        days: the last `DAYS`, today last.
        sessions, turns, tokens, live_turns, live_tokens: totals of all sessions, from their counters.
        moments: an estimate by the database.
        builds: None if there are no builds to time.
        waits: keyed by lane, for lanes with completed jobs.
    """

    made_at: datetime
    days: list[Day]
    sessions: int
    turns: int
    tokens: int
    live_turns: int
    live_tokens: int
    moments: int
    builds: Builds | None
    waits: Mapping[Lane, Waits]

    @property
    def today(self) -> Day:
        return self.days[-1]

    @property
    def whole(self) -> Day:
        whole = Day(self.days[0].date)
        for day in self.days:
            for name in vars(day).keys() - {"date"}:
                setattr(whole, name, getattr(whole, name) + getattr(day, name))
        return whole

    @property
    def compacted(self) -> float | None:
        """The share of tokens outside live windows. Models receive memory instead of these."""
        return 1 - self.live_tokens / self.tokens if self.tokens else None


def activity() -> Activity:
    """Count the work of the last `DAYS` days, and the totals."""
    now = timezone.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight - timedelta(days=DAYS - 1)
    days = {since.date() + timedelta(days=number): Day(since.date() + timedelta(days=number)) for number in range(DAYS)}
    sessions, turns, moments = (
        _by_day(name, rows, since, made)
        for name, rows, made in (
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


def _by_day(name: str, rows: QuerySet[Any], since: datetime, made: str) -> QuerySet[Any]:
    """Return (name, day, number) for rows created on each day. `made` is the column with the time of creation."""
    days = rows.filter(**{f"{made}__gte": since}).annotate(day=TruncDate(made), what=Value(name)).order_by()
    counts: QuerySet[Any] = days.values("what", "day").annotate(number=Count("pk"))
    return counts.values_list("what", "day", "number")


def _contexts_by_day(name: str, since: datetime) -> QuerySet[Any]:
    """Return (name, day, sum) for a column of `ContextUsage` and each day."""
    rows = ContextUsage.objects.filter(day__gte=since.date()).annotate(what=Value(name)).order_by()
    return rows.values("what", "day").annotate(number=Sum(name)).values_list("what", "day", "number")


def _count_calls(days: dict[date, Day], since: datetime) -> None:
    calls = EngineCall.objects.made().filter(created_at__gte=since).annotate(day=TruncDate("created_at"))
    for day, kind, used in usage_by(calls, "day", "error_kind"):
        if day in days:  # the next day may have started in the meantime
            days[day].used += used
            days[day].failures.update({kind: used.calls} if kind else {})


def _waits(since: datetime) -> dict[Lane, Waits]:
    """Return the waits of jobs that ended since a time, keyed by lane."""
    lanes = {process.name: process.lane for process in processes()} | {TASK: Lane.SCHEDULED}
    with connection.cursor() as cursor:
        cursor.execute(_WAITS_SQL, [list(lanes), list(lanes.values()), since])
        rows = cursor.fetchall()
    return {
        Lane(lane): Waits(number, p95, {day: of_day for of, day, _, of_day in rows if of == lane and day})
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
    """Time the builds of the newest `BUILDS_OF_MOMENTS` moments."""
    newest = Moment.objects.filter(job__isnull=False).order_by("-id").values("job")[:BUILDS_OF_MOMENTS]
    by_threshold = Job.objects.filter(pk__in=newest, force=False, status=Job.Status.COMPLETED)
    return _timed(by_threshold.values_list(F("finished_at") - F("queued_at"), flat=True))


def _timed(took: Iterable[timedelta]) -> Builds | None:
    seconds = [each.total_seconds() for each in took]
    if not seconds:
        return None
    p95 = quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    return Builds(len(seconds), median(seconds), p95)


def estimated_rows(model: type[Model]) -> int:
    """Return the number of a table's rows, estimated by the database.

    Small tables are counted, because the estimate lags behind. For operators with limited access, rows are always
    counted.
    """
    if scope_key():
        return model._default_manager.count()
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(_ESTIMATE_SQL.format(table=connection.ops.quote_name(table)), [FEW_ROWS, table])
        [number] = cursor.fetchone() or [0]
    return int(number)
