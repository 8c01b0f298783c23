"""Health checks: whether the process is alive, whether it is ready for work, and the figures behind that."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from rest_framework.request import Request
from rest_framework.views import APIView

from memoryproject.verification import a_request
from moments_app.interfaces.chat.figures import FAILURES
from moments_app.models import Job

OK = "ok"

_migrated = False


class Readiness:
    """What `checks` say, asked in a thread of its own so that no request waits for it nor it for one.

    A database that doesn't answer keeps the thread; whoever asks meanwhile is told that after `PATIENCE` seconds.
    """

    PATIENCE = 3.0

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="readiness")
        self._look: asyncio.Future[dict[str, str]] | None = None

    async def look(self) -> tuple[int, dict[str, object]]:
        """Return the status and the body of the answer."""
        if self._look is None or self._look.done():
            self._look = asyncio.get_running_loop().run_in_executor(self._executor, _checked)
        try:
            states = await asyncio.wait_for(asyncio.shield(self._look), self.PATIENCE)
        except TimeoutError:
            states = {"database": f"No answer within {self.PATIENCE:.0f} s."}
        return _told(states)


def _checked() -> dict[str, str]:
    try:
        return readiness()
    finally:
        connection.close()


def _told(states: dict[str, str]) -> tuple[int, dict[str, object]]:
    ready = all(state == OK for state in states.values())
    return 200 if ready else 503, {"status": OK if ready else "unavailable", "checks": states}


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer as long as the process is alive."""
    return JsonResponse({"status": OK})


def readyz(request: HttpRequest) -> JsonResponse:
    """Database, migrations and queue are as they should be; 503 says which is not."""
    status, told = _told(readiness())
    return JsonResponse(told, status=status)


def readiness() -> dict[str, str]:
    """Check the same as `checks`, and whether a request's own transaction works."""
    states = checks()
    if states["database"] == states["migrations"] == OK and (wrong := a_request()):
        states["database"] = wrong[0]
    return states


def checks() -> dict[str, str]:
    """Check everything that the site needs for its work. Each check is `ok` or says what is wrong."""
    states = {"database": OK, "migrations": OK, "queue": OK}
    try:
        if not _is_migrated():
            states["migrations"] = "Migrations have not been applied; run manage.py migrate."
        else:
            age = Job.objects.oldest_wait()
            if age > settings.JOBS.queue_age_alarm_seconds:
                states["queue"] = f"Due work has waited for {age:.0f} s; is a worker running?"
    except Exception as error:
        # A probe always answers. The class of an error is safe to show; its text may name hosts.
        states["database"] = f"No answer: {type(error).__name__}"
    return states


def _is_migrated() -> bool:
    """Return True if the tables fit this code. True is remembered, because it holds as long as the process runs."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated


class MetricsView(APIView):
    """Figures for Prometheus, read from the database on request, except for those that this process counts itself."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Return job counts by state, the longest wait of due work, and failures of the chat endpoint."""
        registry = CollectorRegistry()
        jobs = Gauge("memory_jobs", "Jobs that are open or have failed.", ["status"], registry=registry)
        for status, count in Job.objects.unfinished_counts().items():
            jobs.labels(status).set(count)
        wait = Gauge("memory_job_oldest_wait_seconds", "Longest wait of due work.", registry=registry)
        wait.set(Job.objects.oldest_wait())
        registry.register(FAILURES)
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
