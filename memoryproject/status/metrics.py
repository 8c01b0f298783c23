"""Prometheus metrics. Most are read from the database on request, and some are counted by the web processes.

Each function in `FIGURES` yields some of them. A function must make a constant number of queries, each of which reads
an index or a limited number of rows. To add a metric, add a function.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.db.models import Count, Sum
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from rest_framework.request import Request
from rest_framework.views import APIView

from memoryproject.schedules import schedule_ages
from memoryproject.serving import observation
from memoryproject.status import site_state
from moments_app.models import ContextReceipt, EmbeddingModel, EngineCall, Job
from moments_app.models.engine_call import EngineCallQuerySet
from moments_app.models.job import JobQuerySet
from moments_app.recall.vectors import EmbeddingProgress, embedding_progress
from moments_app.reports.overview import DUE, JobGroup, estimated_rows, job_groups
from sessions_app.api.permissions import HasScope, IsServiceKey, key_of
from sessions_app.api.throttling import KeyRateThrottle
from sessions_app.database.transactions import using_role
from sessions_app.models import DailyUsage
from sessions_app.models.application import DEFAULT
from sessions_app.models.daily_limit import UNITS, DailyUsageQuerySet, today
from sessions_app.transcript import spool

RECENT = timedelta(minutes=5)  # period over which calls to providers are counted
KEPT_SECONDS = 60  # how long counts are cached; counting vectors is slow, and Prometheus doesn't need fresh values

Labeled = dict[tuple[str, ...], float]
Figures = Callable[[], Iterator[Metric]]


class MetricsView(APIView):
    """The metrics, for service keys.

    A key of the first application gets all of them. Another key gets only those of its application.
    """

    permission_classes = [HasScope, IsServiceKey]
    throttle_classes = [KeyRateThrottle]  # the daily limits don't apply

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Skip the negotiation: `get` reads the `Accept` header itself, and errors are always JSON."""
        return super().perform_content_negotiation(request, force=True)

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Return all figures, in the Prometheus format that the client accepts."""
        key = key_of(request)
        registry = CollectorRegistry()
        if key.application_id == DEFAULT:
            registry.register(_DatabaseCollector(FIGURES))
            observation.register(registry)
        else:
            registry.register(_DatabaseCollector(figures_of(key.application_id)))
        try:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # a version in the header is not a number
            encode, content_type = choose_encoder("")
        return HttpResponse(encode(registry), content_type=content_type)


class _DatabaseCollector(Collector):
    def __init__(self, figures: Sequence[Figures]) -> None:
        self._figures = figures

    def describe(self) -> list[Metric]:
        """Return nothing. Without this method, the registry would collect the metrics twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        for figures in self._figures:
            yield from figures()


def figures_of(application: int) -> "list[Figures]":
    jobs = Job.objects.of_application(application)
    calls = EngineCall.objects.without_parts().filter(job__in=jobs)
    usage = DailyUsage.objects.filter(application=application)
    return [partial(_jobs, jobs), partial(_calls, calls), partial(_usage, usage)]


def _jobs(jobs: JobQuerySet) -> Iterator[Metric]:
    groups = job_groups(jobs)
    counts: Labeled = {(str(status),): 0 for status in (*Job.OPEN, Job.Status.FAILED)}
    by_process: Labeled = {}
    for group in groups:
        counts[group.status,] = counts.get((group.status,), 0) + group.number
        key = group.status, group.process, group.lane
        by_process[key] = by_process.get(key, 0) + group.number
    yield _gauge("memory_jobs", "Open and failed jobs.", ["status"], counts)
    yield _gauge(
        "memory_jobs_by_process", "Open and failed jobs by process.", ["status", "process", "lane"], by_process
    )
    yield from _waits(jobs, [group for group in groups if group.waits_for])


def _waits(jobs: JobQuerySet, groups: list[JobGroup]) -> Iterator[Metric]:
    now = timezone.now()
    held: Labeled = {(group.waits_for, group.process): group.number for group in groups if group.waits_for != DUE}
    waits: Labeled = {(kind,): 0 for kind in (DUE, *Job.Held.values)}
    waits[DUE,] = jobs.oldest_wait()  # includes jobs of dead workers
    for group in groups:
        since = group.since or now
        waits[group.waits_for,] = max(waits[group.waits_for,], (now - since).total_seconds())
    yield _gauge("memory_jobs_held", "Jobs that are not due yet, by reason.", ["waits_for", "process"], held)
    yield _gauge(
        "memory_job_wait_seconds", "Longest wait of jobs that are not due yet, by reason.", ["waits_for"], waits
    )
    name = "memory_job_oldest_wait_seconds"
    yield _gauge(name, "Longest wait of due or held jobs.", [], {(): max(waits.values())})


def _calls(calls: EngineCallQuerySet) -> Iterator[Metric]:
    recent = calls.filter(created_at__gte=timezone.now() - RECENT).order_by()
    summed = ("input_tokens", "output_tokens", "cost_usd", "latency_ms")
    sums = {f"sum_{name}": Sum(name, default=0) for name in summed}
    rows: Any = list(recent.values("engine", "error_kind").annotate(number=Count("pk"), **sums))
    ends: Labeled = {(row["engine"], row["error_kind"] or "ok"): row["number"] for row in rows}
    yield _gauge(
        "memory_engine_calls_recent", "Model calls of the last five minutes, by outcome.", ["engine", "end"], ends
    )
    tokens: defaultdict[tuple[str, ...], float] = defaultdict(float)
    usd, seconds = tokens.copy(), tokens.copy()
    for row in rows:
        engine = row["engine"]
        tokens[engine, "input"] += row["sum_input_tokens"]
        tokens[engine, "output"] += row["sum_output_tokens"]
        usd[engine,] += float(row["sum_cost_usd"])
        seconds[engine,] += row["sum_latency_ms"] / 1000
    yield _gauge(
        "memory_engine_tokens_recent",
        "Tokens of model calls of the last five minutes.",
        ["engine", "direction"],
        tokens,
    )
    yield _gauge(
        "memory_engine_usd_recent",
        "Cost of model calls of the last five minutes, where prices are known.",
        ["engine"],
        usd,
    )
    yield _gauge(
        "memory_engine_seconds_recent", "Total duration of model calls of the last five minutes.", ["engine"], seconds
    )


def _usage(rows: DailyUsageQuerySet) -> Iterator[Metric]:
    """Yield the usage of applications today. The counters restart at 0 at midnight UTC, which Prometheus allows."""
    sums: Any = rows.filter(application__isnull=False, day=today()).order_by().values("application__name")
    used = list(sums.annotate(**{f"sum_{name}": Sum(name) for name in UNITS}))
    for name, unit in UNITS.items():
        counter = CounterMetricFamily(f"memory_{name}", f"Used today, in {unit}.", labels=["application"])
        for row in used:
            counter.add_metric([row["application__name"]], float(row[f"sum_{name}"]))
        yield counter


def _vectors() -> Iterator[Metric]:
    kinds: list[EmbeddingProgress] = cache.get_or_set("vectors", _counted, KEPT_SECONDS) or []
    missing: Labeled = {(one.kind,): one.waiting for one in kinds}
    refused: Labeled = {(one.kind,): one.refused for one in kinds}
    yield _gauge("memory_vectors_missing", "Texts that wait for a vector; estimated above 10,000.", ["kind"], missing)
    yield _gauge("memory_vectors_refused", "Texts that the endpoint rejects.", ["kind"], refused)


def _counted() -> list[EmbeddingProgress]:
    model = EmbeddingModel.objects.active().first() if settings.EMBEDDING.is_on else None
    return embedding_progress(model) if model else []


def _rounds() -> Iterator[Metric]:
    yield _gauge(
        "memory_chat_rounds_waiting", "Chat rounds on this host that wait to be stored.", [], {(): spool.orphan_count()}
    )


def _schedules() -> Iterator[Metric]:
    seconds: Labeled = {(name,): age.total_seconds() for name, age in schedule_ages().items()}
    yield _gauge("memory_schedule_age_seconds", "Time since the last run of a schedule.", ["schedule"], seconds)


def _contexts() -> Iterator[Metric]:
    receipts = estimated_rows(ContextReceipt)
    yield _gauge("memory_context_receipts", "Stored contexts.", [], {(): receipts})


def _database() -> Iterator[Metric]:
    with using_role(None), connection.cursor() as cursor:  # reading the size requires the right to connect
        cursor.execute("SELECT pg_database_size(current_database())")
        (size,) = cursor.fetchone() or (0,)
    yield _gauge("memory_database_bytes", "Size of the database on disk.", [], {(): size})


def _site() -> Iterator[Metric]:
    recent_events = site_state.recent_events(1)
    now = [change.state for change in recent_events.changes]
    states: Labeled = {(str(state),): float(state in now) for state in site_state.State}
    yield _gauge("memory_state", "1 for the current state of the site, 0 for the other states.", ["state"], states)
    refused = len(recent_events.refused)
    yield _gauge(
        "memory_providers_refused", "Providers that reject their configured key or address.", [], {(): refused}
    )
    restarts = site_state.restarts(site_state.DAY).count()
    yield _gauge("memory_process_restarts_last_day", "Processes that crashed and were restarted.", [], {(): restarts})


FIGURES: list[Figures] = [
    partial(_jobs, Job.objects.all()),
    partial(_usage, DailyUsage.objects.all()),
    partial(_calls, EngineCall.objects.without_parts()),
    _vectors,
    _rounds,
    _contexts,
    _schedules,
    _database,
    _site,
]


def _gauge(name: str, documentation: str, labels: list[str], values: Labeled) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, documentation, labels=labels)
    for of, value in values.items():
        gauge.add_metric(list(of), value)
    return gauge
