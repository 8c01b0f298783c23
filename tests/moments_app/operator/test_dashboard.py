"""The dashboard."""

from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from memoryproject.schedules import RUN_TASK
from memoryproject.status.site_state import Change, State, record_refused_providers
from moments_app.engines.interface import CallRecord
from moments_app.jobs.runner import run_job
from moments_app.models import Circuit, ContextUsage, EngineCall, FailureGroup, Job
from moments_app.models.context_receipt import ContextTokens
from sessions_app.models import Event, UserProfile
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = reverse("admin:index")


@pytest.fixture
def worker(transactional_db: None) -> None:
    """Run a scheduled task, as a running worker does."""
    job = Job.objects.request_task("count_words", RUN_TASK, "count_words", requested_by="schedule")
    run_job(job.job_id)


def fail(job: Job, error: str = "The model is away.") -> Job:
    Job.objects.filter(pk=job.pk).update(status="failed", error=error, finished_at=timezone.now())
    return job


def test_all_is_well_without_problems(root: Client, worker: None) -> None:
    assert "All is well" in page(root, INDEX)


def test_a_missing_worker_is_reported(root: Client) -> None:
    assert "No worker is running: none has run yet" in page(root, INDEX)


def test_the_state_of_readyz_is_shown(root: Client, ada: UserProfile, client: Client) -> None:
    Job.objects.request("build_moments", talk(ada, 5), requested_by="test")
    Job.objects.update(run_after=timezone.now() - timedelta(minutes=10))
    told = client.get("/readyz").json()["checks"]["queue"]
    assert told.split(" for ")[0] in page(root, INDEX)


def test_the_state_and_its_changes_have_reasons(root: Client, worker: None) -> None:
    for state, reason in (("up", []), ("degraded", [f"It is slow. {PLANTED}"])):
        Change(State(state), "", timezone.now(), reason).record()
    shown = page(root, INDEX)
    assert shown.index(">degraded</span>") < shown.index(">up</span>")
    assert "It is slow." in shown and PLANTED not in shown


def test_the_current_reasons_are_shown_not_those_of_the_change(root: Client, ada: UserProfile, worker: None) -> None:
    Change(State.DEGRADED, "up", timezone.now(), ["The circuit of a model is open."]).record()
    Job.objects.request("build_moments", talk(ada, 5), requested_by="test")
    Job.objects.filter(process="build_moments").update(
        held_by=Job.Held.BUDGET, held_since=timezone.now(), run_after=timezone.now() + timedelta(hours=1)
    )
    now, changes = page(root, INDEX).split("State changes")
    assert "1 job has been waiting for" in now and "The circuit of a model is open." not in now
    assert "All is well" not in now
    assert "The circuit of a model is open." in changes


@pytest.mark.slow
def test_each_open_circuit_is_a_reason_or_an_alert(root: Client, ada: UserProfile, worker: None) -> None:
    Change(State.DEGRADED, "up", timezone.now(), []).record()
    job = Job.objects.request("build_moments", talk(ada, 30), requested_by="append")
    call = CallRecord("moment-builder", "openai:gpt", 5, error_kind="unavailable", error="It is away.")
    EngineCall.objects.record(call, job=job)
    circuit = Circuit.objects.create(engine="openai:gpt", work="text", state="open", reason="unavailable")
    Job.objects.filter(pk=job.pk).update(circuit=circuit, failure=FailureGroup.objects.get())
    assert page(root, INDEX).count(circuit.why) == 1
    Job.objects.update(circuit=None)
    assert page(root, INDEX).count(circuit.why) == 1


def test_recent_process_deaths_and_rejected_keys_are_shown(root: Client, worker: None) -> None:
    for hours, told in ((1, "The web server ended."), (30, "The worker ended.")):
        event = Event.objects.create(type="process_restarted", actor="run", payload={"told": told})
        Event.objects.filter(pk=event.pk).update(created_at=timezone.now() - timedelta(hours=hours))
    record_refused_providers(["Look at ENGINE__API_KEY."])
    shown = page(root, INDEX)
    assert "The web server ended." in shown and "The worker ended." not in shown
    assert "Look at ENGINE__API_KEY." in shown


def test_failures_have_errors_and_links(root: Client, ada: UserProfile, worker: None) -> None:
    job = fail(build(talk(ada, 60)))
    shown = page(root, INDEX)
    assert "1 job failed permanently." in shown
    assert f"{list_url(Job)}?state=failed" in shown
    assert "The model is away." in shown and change_url(job) in shown


def test_kinds_of_failed_calls_link_to_their_list(root: Client, worker: None) -> None:
    for kind in ("", "timeout", "timeout"):
        EngineCall.objects.create(purpose="p", engine="e", latency_ms=1, ok=not kind, error_kind=kind)
    shown = page(root, INDEX)
    kinds = f"{list_url(EngineCall)}?error_kind=timeout"
    assert kinds in shown
    assert "1 of these calls have no price" in shown


def test_figures_of_charts_are_in_a_table(root: Client, ada: UserProfile) -> None:
    build(talk(ada, 60))
    shown = page(root, INDEX)
    assert shown.count('<th scope="row">20') == 60  # a table of turns and calls, and one of waiting times
    assert shown.count('class="chart"') == 8


def test_the_chart_of_contexts_shows_the_share_of_transcripts_sent(root: Client, ada: UserProfile) -> None:
    ContextUsage.objects.add({(ada.application_id, timezone.now().date()): ContextTokens(2, 1_500, 10_000)})
    shown = page(root, INDEX)
    assert "1,500, 15% of transcripts" in shown
    assert '<td class="rem-number">1,500</td><td class="rem-number">10,000</td>' in shown


@pytest.mark.slow
def test_operators_without_rights_see_nothing(ada: UserProfile) -> None:
    fail(build(talk(ada, 60)))
    shown = page(operator("nothing"), INDEX)
    assert "You don't have permission to see anything here" in shown
    assert "The model is away." not in shown and "Turns" not in shown


def test_operators_with_rights_for_sessions_only_see_no_jobs(ada: UserProfile) -> None:
    fail(build(talk(ada, 60)))
    shown = page(operator("view_session"), INDEX)
    assert "Tokens compacted" in shown
    assert "The model is away." not in shown and "Model calls" not in shown


def test_row_18_a_script_in_an_error_is_escaped(root: Client, ada: UserProfile) -> None:
    fail(build(talk(ada, 60)), PLANTED)
    UserProfile.objects.update(user_id=PLANTED)
    shown = page(root, INDEX)
    assert PLANTED not in shown and "planted" in shown


@pytest.mark.slow
def test_it_takes_a_constant_number_of_queries(root: Client, ada: UserProfile) -> None:
    def asked() -> int:
        cache.clear()  # as some minutes later, when monthly figures are counted again
        with CaptureQueriesContext(connection) as captured:
            page(root, INDEX)
        return len(captured)

    fail(build(talk(ada, 60)))
    page(root, INDEX)  # fills the permanent caches
    few = asked()
    for number in range(12):
        fail(build(talk(UserProfile.objects.ensure(f"person-{number}"), 60, session_id=f"s{number}")))
    assert asked() == few
    assert queries_of(root, INDEX) < few <= MAX_QUERIES
