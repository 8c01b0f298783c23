"""Is the process alive, is it ready for work, and the figures behind that."""

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from rest_framework.request import Request
from rest_framework.views import APIView

from moments_app.chat.figures import FAILURES
from moments_app.models import Job

_migrated = False


def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """Database, migrations and queue are as they should be; 503 says which is not."""
    checks = {"database": "ok", "migrations": "ok", "queue": "ok"}
    try:
        if not _is_migrated():
            checks["migrations"] = "Migrations have not been applied; run manage.py migrate."
        else:
            age = Job.objects.oldest_wait()
            if age > settings.JOBS.queue_age_alarm_seconds:
                checks["queue"] = f"Due work has waited for {age:.0f} s; is a worker running?"
    except Exception as error:
        # Whatever it is: a probe answers. The kind of error is safe to show, its text may name hosts.
        checks["database"] = f"No answer: {type(error).__name__}"
    ready = all(state == "ok" for state in checks.values())
    return JsonResponse({"status": "ok" if ready else "unavailable", "checks": checks}, status=200 if ready else 503)


def _is_migrated() -> bool:
    """Whether the tables fit this code. A yes is remembered: it stays true as long as the process runs."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated


class MetricsView(APIView):
    """Figures for Prometheus, read from the database when asked, but for what this process counts itself."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Job counts by state, the longest wait of due work, failures of the chat endpoint."""
        registry = CollectorRegistry()
        jobs = Gauge("memory_jobs", "Jobs that are open or have failed.", ["status"], registry=registry)
        for status, count in Job.objects.unfinished_counts().items():
            jobs.labels(status).set(count)
        wait = Gauge("memory_job_oldest_wait_seconds", "Longest wait of due work.", registry=registry)
        wait.set(Job.objects.oldest_wait())
        registry.register(FAILURES)
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
