"""Responses of the site outside the API."""

import json
import subprocess
import sys
from datetime import UTC, datetime, time, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from django_q.models import Schedule

from memoryproject.conf import BASE_DIR
from memoryproject.schedules import register_schedules, schedules
from moments_app.models import PromptResource
from moments_app.prompts import MOMENT_BUILDER_URI, install_shipped_prompts
from sessions_app.models.application import DEFAULT
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.processes import environment

pytestmark = pytest.mark.django_db(transaction=True)

ICON = "/static/memoryproject/favicon.svg"


def test_probes_need_no_key(client: Any) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["checks"] == {"database": "ok", "migrations": "ok", "queue": "ok"}


@pytest.mark.slow
def test_the_schema_is_not_sent_again_to_a_client_that_caches_it(client: Any) -> None:
    first = client.get("/api/v1/schema")
    again = client.get("/api/v1/schema", headers={"If-None-Match": first["ETag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.slow
def test_row_29_the_schema_is_generated_at_startup() -> None:
    code = "from memoryproject import asgi; print(asgi.schema_view.generate.cache_info())"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(
        command, cwd=BASE_DIR, env=environment(), capture_output=True, text=True, check=True
    ).stdout
    assert "currsize=1" in printed


def test_metrics_need_a_service_key(client: Any, service: Api, as_ada: Api) -> None:
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=as_ada.headers).status_code == 403
    answer = client.get("/metrics", headers=service.headers)
    assert 'memory_jobs{status="failed"} 0.0' in answer.content.decode()


def test_the_schema_has_every_call_with_its_errors_and_authentication(client: Any) -> None:
    schema = json.loads(client.get("/api/v1/schema").content)
    assert schema["openapi"].startswith("3.1")
    assert {
        "/api/v1/sessions/{session_id}/messages",
        "/api/v1/moments/build",
        "/api/v1/moments/{key}/chain",
        "/api/v1/jobs/{job_id}/retry",
        "/api/v1/users/{user_id}",
        "/api/v1/users/{user_id}/export",
    } <= set(schema["paths"])
    for path, calls in schema["paths"].items():
        for method, call in calls.items():
            assert {"401", "403"} <= set(call["responses"]), f"{method} {path}"
            assert call["security"] == [{"ApiKey": []}]


@pytest.mark.slow
def test_the_schema_has_no_warnings() -> None:
    err = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=StringIO(), stderr=err)


def test_the_docs_page_loads_nothing_from_other_hosts(client: Any) -> None:
    page = client.get("/api/v1/docs").content.decode()
    assert "swagger-ui" in page
    assert "https://" not in page


@pytest.mark.parametrize(
    "path", ["/", "/admin/login/", "/api/v1/docs", "/api/v1/users/ada", "/healthz", "/nowhere", ICON]
)
def test_row_18_every_response_has_a_policy_that_blocks_inline_scripts(client: Any, path: str) -> None:
    policy = client.get(path).headers["Content-Security-Policy"]
    directives = {name: set(sources) for name, *sources in map(str.split, policy.split(";"))}
    assert directives["default-src"] == directives["frame-ancestors"] == directives["base-uri"] == {"'none'"}
    assert directives["script-src"] == directives["connect-src"] == directives["form-action"] == {"'self'"}
    assert "unsafe" not in policy


@pytest.mark.slow
def test_migrate_registers_the_schedules() -> None:
    Schedule.objects.all().delete()
    call_command("migrate", verbosity=0)
    assert set(Schedule.objects.values_list("name", flat=True)) == set(schedules())


def test_schedules_are_registered_once_and_changed_intervals_are_restored(transactional_db: None) -> None:
    for _ in range(2):
        register_schedules()
    Schedule.objects.update(minutes=99)
    register_schedules()
    registered = dict(Schedule.objects.values_list("name", "minutes"))
    assert registered == {
        "count_words": 1,
        "index_words": 1,
        "compact_sessions": 30,
        "form_memories": 10,
        "embed": 10,
        "embed_all": 10,
        "prune_items": 10,
        "prune_receipts": 60,
        "housekeeping": None,
        "index_archived": None,
        "put_times_back": None,
        "retain": None,
        "vacuum": None,
    }
    out = printed("schedules")
    assert "count_words: every 1 min" in out
    assert "retain: daily at 03:00 UTC" in out


def test_a_daily_task_runs_at_its_time_of_day_whenever_it_was_registered(transactional_db: None) -> None:
    Schedule.objects.filter(name="retain").delete()
    for _ in range(2):
        register_schedules()
        row = Schedule.objects.get(name="retain")
        assert row.next_run.time() == time(3)
        assert timedelta(0) < row.next_run - timezone.now() <= timedelta(days=1)
        row.next_run += timedelta(minutes=17)
        row.save()
    assert row.calculate_next_run(datetime(2026, 3, 2, 3, tzinfo=UTC)) == datetime(2026, 3, 3, 3, tzinfo=UTC)


def test_no_task_waits_longer_than_its_interval_after_a_clock_was_ahead(transactional_db: None) -> None:
    Schedule.objects.update(next_run=timezone.now() + timedelta(days=2))
    register_schedules()
    late = [row.name for row in Schedule.objects.all() if row.next_run > row.calculate_next_run(timezone.now())]
    assert late == []


class TestShippedPrompts:
    """Prompts shipped with the product."""

    def resource(self) -> PromptResource:
        return PromptResource.objects.get(uri=MOMENT_BUILDER_URI)

    def test_shipped_prompts_are_installed_once(self, transactional_db: None) -> None:
        install_shipped_prompts()
        assert self.resource().versions.count() == 1
        assert "moments" in PromptResource.objects.version_in_force(MOMENT_BUILDER_URI, DEFAULT).content

    def test_the_version_of_an_operator_stays_active_after_a_release_with_a_new_text(
        self, transactional_db: None
    ) -> None:
        resource = self.resource()
        own = resource.add_version("own", created_by="operator:eve")
        resource.activate(own)
        resource.versions.filter(created_by="shipped").delete()
        install_shipped_prompts()
        assert self.resource().active_version == own
        assert [version.number for version in resource.versions.all()] == [3, 2]

    def test_a_shipped_version_is_replaced_by_a_newer_shipped_one(self, transactional_db: None) -> None:
        resource = self.resource()
        old = resource.add_version("older text", created_by="shipped")
        resource.activate(old)
        resource.versions.exclude(pk=old.pk).delete()
        install_shipped_prompts()
        active = self.resource().active_version
        assert active is not None
        assert active.content != "older text"

    def test_a_version_cannot_be_changed(self, transactional_db: None) -> None:
        version = self.resource().versions.get()
        version.content = "changed"
        with pytest.raises(ValueError, match="can't be changed"):
            version.save()

    def test_a_version_of_another_prompt_cannot_be_activated(self, transactional_db: None) -> None:
        other = PromptResource.objects.create(uri="rem://prompts/x", name="x", purpose="session-digest")
        with pytest.raises(ValueError, match="not one of"):
            other.activate(self.resource().versions.get())
