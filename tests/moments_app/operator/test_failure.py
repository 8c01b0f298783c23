"""The pages of failures: each cause once, with the people it affected, the held jobs, and what to do."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.engines.interface import CallRecord, Exchange
from moments_app.models import Circuit, EngineCall, FailureGroup, Job
from moments_app.models.engine_call import EngineCallQuerySet
from moments_app.reports.incidents import incidents_of
from sessions_app.models import Event, UserProfile
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = "/admin/"
ENGINE = "openai:gpt-4.1-mini"
CALLS: EngineCallQuerySet = EngineCall.objects  # type: ignore[assignment]


def fail(*names: str, kind: str = "invalid_answer", error: str = "It gave no valid answer.") -> FailureGroup:
    """Create a failed build for each of these people."""
    for name in names:
        session = talk(UserProfile.objects.ensure(name), 30)
        job = Job.objects.request("build_moments", session, requested_by="append")
        said = Exchange(f"What {name} said.", f"No, {name}.")
        CALLS.record(CallRecord("moment-builder", ENGINE, 5, error_kind=kind, error=error, exchange=said), job=job)
        failure = FailureGroup.objects.get(kind=kind)
        Job.objects.filter(pk=job.pk).update(status="failed", failure=failure, error=error)
    return failure


def press(client: Client, failure: FailureGroup, button: str, cause: str = "") -> int:
    """Press a button on the page of a failure, for the incident with this cause, or for the only one."""
    [key] = [incident.key for incident in incidents_of(failure) if cause in incident.cause]
    url = reverse(f"admin:moments_app_failuregroup_{button}", args=[failure.pk])
    return client.post(url, {"incident": key}).status_code


def answered(name: str) -> None:
    """Create a successful call for a person."""
    session = talk(UserProfile.objects.ensure(name), 30)
    job = Job.objects.request("build_moments", session, requested_by="append")
    CALLS.record(CallRecord("moment-builder", ENGINE, 5), job=job)
    Job.objects.filter(pk=job.pk).update(status="completed")


def test_the_card_shows_cause_missing_memory_and_remedy(root: Client) -> None:
    failure = fail("ada", "bo", "cy")
    shown = page(root, INDEX)
    assert shown.count('<li class="rem-incident">') == 1
    assert f"<h3>{ENGINE} gives invalid answers</h3>" in shown
    assert "3 failed, 0 waiting jobs" in shown and "3 people: " in shown and ">ada</a>" in shown
    assert "Unless the failed jobs are retried, these stay missing: moments of new messages (3 jobs)." in shown
    assert "Read a failed answer, and change the prompt or the model. Then press Try one" in shown
    assert "failed permanently" not in shown  # the incident already counts them
    assert change_url(failure) in shown
    assert "All is well" not in shown


def test_row_50_the_dashboard_names_the_person_if_others_are_answered(root: Client) -> None:
    fail("ada", kind="rejected", error="It answered with status 400.")
    answered("calvin")
    again = CallRecord("moment-builder", ENGINE, 5, error_kind="rejected", error="It answered with status 400.")
    CALLS.record(again, job=Job.objects.get(user__user_id="ada"))
    shown = page(root, INDEX)
    assert "<h3>Calls about ada fail</h3>" in shown
    assert "The same prompt for calvin was answered at " in shown
    assert "so waiting doesn&#x27;t help" in shown and "retried automatically" not in shown


@pytest.mark.slow
def test_unfinished_work_is_shown_before_newer_resolved_failures(root: Client) -> None:
    fail(*(f"person-{number}" for number in range(8)), kind="rejected", error="It answered with status 400.")
    FailureGroup.objects.update(last_seen_at=timezone.now() - timedelta(hours=1))
    for number in range(10):
        FailureGroup.objects.create(process=f"process-{number}", engine=ENGINE, kind="timeout", count=1)
    shown = page(root, INDEX)
    assert f"<h3>{ENGINE} rejects texts</h3>" in shown and "8 failed, 0 waiting jobs" in shown
    assert "process-9" not in shown  # no job waits for it


@pytest.mark.slow
def test_a_current_failure_with_held_jobs_is_not_resolved(root: Client) -> None:
    failure = fail("ada", kind="unavailable", error="It is away.")
    circuit = Circuit.objects.create(engine=ENGINE, work="text", state="open", holds_all=True, reason="unavailable")
    for number in range(8):
        session = talk(UserProfile.objects.ensure(f"person-{number}"), 30)
        job = Job.objects.request("build_moments", session, requested_by="append")
        Job.objects.filter(pk=job.pk).update(circuit=circuit, held_by="circuit")
    Job.objects.filter(failure=failure).update(status="completed")
    shown = page(root, INDEX)
    assert f"<h3>{ENGINE} can&#x27;t be reached</h3>" in shown and "0 failed, 8 waiting jobs" in shown
    assert "jobs unfinished" in page(root, change_url(failure)) and "unfinished" in page(root, list_url(FailureGroup))


@pytest.mark.slow
def test_one_outage_is_one_card_that_counts_each_job_once(root: Client, bo: UserProfile) -> None:
    failure = fail("ada", kind="unavailable", error="It is away.")
    for process in ("form_memories", "roll_summary", "settle"):
        session = talk(UserProfile.objects.ensure(process), 30)
        job = Job.objects.request(process, session, requested_by="append")
        other = FailureGroup.objects.find(job, process, "unavailable", engine=ENGINE)
        other.add("It is away.")
        Job.objects.filter(pk=job.pk).update(status="failed", failure=other)
    circuit = Circuit.objects.create(engine=ENGINE, work="text", state="open", holds_all=True, reason="unavailable")
    held = Job.objects.request("build_moments", talk(bo, 30), requested_by="append")
    Job.objects.filter(pk=held.pk).update(circuit=circuit, held_by="circuit")
    shown = page(root, INDEX)
    assert shown.count('<li class="rem-incident">') == 1
    assert "4 failed, 1 waiting job<" in shown and "5 people: " in shown
    assert "The circuit" not in shown  # it is mentioned once
    assert press(root, failure, "retry") == 302
    assert not Job.objects.filter(status="failed").exists()  # of all processes


@pytest.mark.slow
def test_the_card_stays_until_the_work_is_done(root: Client) -> None:
    failure = fail("ada", "bo")
    assert press(root, failure, "retry") == 302
    assert set(Job.objects.values_list("status", flat=True)) == {"queued"}
    shown = page(root, INDEX)
    assert "0 failed, 2 waiting jobs" in shown and "2 jobs due now" in shown
    Job.objects.update(status="completed")
    shown = page(root, INDEX)
    assert "rem-incident" not in shown


def test_one_job_is_retried_and_its_page_opens(root: Client) -> None:
    failure = fail("ada", "bo")
    assert press(root, failure, "try") == 302
    assert sorted(Job.objects.values_list("status", flat=True)) == ["failed", "queued"]


@pytest.mark.slow
def test_a_muted_incident_stays_on_the_dashboard(root: Client) -> None:
    failure = fail("ada")
    assert press(root, failure, "mute") == 302
    shown = page(root, INDEX)
    assert "rem-incident-muted" in shown and ">muted</span>" in shown and f"{ENGINE} gives invalid answers" in shown
    assert "operator root" in page(root, change_url(failure))
    assert press(root, failure, "unmute") == 302
    assert "rem-incident-muted" not in page(root, INDEX)


@pytest.mark.slow
def test_a_failure_without_muted_incidents_is_not_shown_as_muted(root: Client) -> None:
    failure = fail("ada")
    FailureGroup.objects.update(muted_at=timezone.now(), muted_by="operator:eve")  # muted by an earlier release
    assert "Muted by" not in page(root, change_url(failure))
    assert change_url(failure) in page(root, list_url(FailureGroup), muted="0")
    assert change_url(failure) not in page(root, list_url(FailureGroup), muted="1")
    assert press(root, failure, "mute") == 302
    assert "Muted by" in page(root, change_url(failure))
    assert change_url(failure) not in page(root, list_url(FailureGroup), muted="0")
    assert change_url(failure) in page(root, list_url(FailureGroup), muted="1")


@pytest.fixture
def shared() -> FailureGroup:
    """A failure that affected Bo by chance, and Ada because of her text."""
    failure = fail("ada", "bo", kind="rejected", error="It answered with status 400.")
    answered("calvin")
    again = CallRecord("moment-builder", ENGINE, 5, error_kind="rejected", error="It answered with status 400.")
    CALLS.record(again, job=Job.objects.get(user__user_id="ada"))
    return failure


def test_row_50_each_incident_of_a_failure_has_its_card_and_buttons(root: Client, shared: FailureGroup) -> None:
    shown = page(root, change_url(shared))
    assert "<h3>Calls about ada fail</h3>" in shown and f"<h3>{ENGINE} sometimes rejects texts</h3>" in shown
    assert shown.count(">Retry 1 job</button>") == 2


@pytest.mark.parametrize("button", ["try", "retry"])
def test_row_50_a_button_of_a_persons_incident_runs_only_their_jobs(
    root: Client, shared: FailureGroup, button: str
) -> None:
    assert press(root, shared, button, "ada") == 302
    assert dict(Job.objects.exclude(status="completed").values_list("user__user_id", "status")) == {
        "ada": "queued",
        "bo": "failed",
    }


@pytest.mark.slow
def test_row_50_muting_a_persons_incident_mutes_only_that_one(root: Client, shared: FailureGroup) -> None:
    assert press(root, shared, "mute", "ada") == 302
    assert page(root, INDEX).count("rem-incident-muted") == 1


def test_a_button_of_an_ended_incident_changes_nothing(root: Client, shared: FailureGroup) -> None:
    url = reverse("admin:moments_app_failuregroup_retry", args=[shared.pk])
    shown = root.post(url, {"incident": "person:0"}, follow=True).content.decode()
    assert "This incident is over" in shown
    assert Job.objects.filter(status="failed").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("rights", [("view_failuregroup", "change_job"), ("view_", "change_job")])
def test_without_rights_for_circuits_buttons_only_retry_jobs(settings: Settings, rights: tuple[str, ...]) -> None:
    settings.EMBEDDING = settings.EMBEDDING.model_copy(
        update={"provider": "openai", "base_url": settings.ENGINE.base_url}
    )
    failure = fail("ada", "bo", kind="unavailable", error="It is away.")
    later = timezone.now() + timedelta(days=1)
    of_all = {"state": "open", "holds_all": True, "next_probe_at": later}
    Circuit.objects.create(engine=ENGINE, work="text", reason="unavailable", **of_all)
    client = operator(*rights)
    button = re.search(r'name="incident" value="([^"]*)"', page(client, change_url(failure)))
    assert button
    url = reverse("admin:moments_app_failuregroup_retry", args=[failure.pk])
    assert "2 jobs due now" in client.post(url, {"incident": button[1]}, follow=True).content.decode()
    assert set(Job.objects.values_list("status", flat=True)) == {"queued"}
    assert Circuit.objects.get().next_probe_at == later


@pytest.mark.slow
def test_the_page_shows_common_properties_and_missing_memory(root: Client) -> None:
    failure = fail("ada", "bo")
    circuit = Circuit.objects.create(engine=ENGINE, work="text", state="open", holds_all=True, reason="invalid_answer")
    shown = page(root, change_url(failure))
    assert "Endpoint" in shown and f"{ENGINE} (all failures)" in shown
    assert "ada</a> (1 job)" in shown and "bo</a> (1 job)" in shown
    assert "60 turns without a moment in 2 sessions" in shown
    assert change_url(circuit) in shown and "has not been called since" in shown and "Try now" in shown
    job = Job.objects.first()
    assert job is not None and change_url(job) in shown
    assert change_url(failure) in page(root, change_url(job)) and "0–29</a> not read yet" in page(root, change_url(job))


@pytest.mark.slow
def test_the_list_groups_causes_below_providers_and_lanes(root: Client, settings: Settings) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"provider": "openai"})
    fail("ada", "bo", "cy"), fail("dora", kind="timeout", error="It did not answer within 60 s.")
    Circuit.objects.create(engine=ENGINE, work="text", state="open", holds_all=True, error="It is away.")
    shown = page(root, list_url(FailureGroup))
    assert shown.count("Build moments: invalid answer") == 1 and shown.count("Build moments: timeout") == 1
    assert "It gave no valid answer." in shown and "It is away." in shown
    assert "Moments and facts" in shown and "Bulk work" in shown and f"Try {ENGINE}, text now" in shown
    assert f"Build moments: timeout · {ENGINE}" not in page(root, list_url(FailureGroup), muted="1")


def test_the_exchange_is_shown_to_operators_who_can_read_people_and_recorded(root: Client) -> None:
    fail("ada")
    call = EngineCall.objects.get()
    shown = page(root, change_url(call))
    assert "What ada said." in shown and "No, ada." in shown
    assert Event.objects.filter(user_pk=UserProfile.objects.get().pk, actor="operator:root").exists()
    seen = page(operator("view_"), change_url(call))
    assert "What ada said." not in seen and "you need permission" in seen


def test_retrying_all_asks_for_confirmation_with_the_number_of_jobs(root: Client) -> None:
    shown = page(root, change_url(fail("ada", "bo", "cy")))
    assert "Retry all…" in shown and "Up to 500 failed jobs of this incident" in shown
    assert re.search(r'<details class="rem-confirm">(?:(?!</details>).)*Retry 3 jobs</button>', shown, re.S)


def test_row_18_a_viewer_sees_a_failure_but_cannot_change_anything() -> None:
    failure = fail("ada")
    viewer = operator("view_")
    shown = page(viewer, change_url(failure))
    assert "Retry all…" not in shown and "</button>" not in shown[shown.index("Incident") : shown.index("In common")]
    assert [press(viewer, failure, button) for button in ("try", "retry", "mute", "unmute")] == [403] * 4
    assert Job.objects.get().status == "failed"
    assert Permission.objects.filter(codename="view_failuregroup").exists()


@pytest.mark.slow
def test_row_18_scripts_in_errors_and_answers_are_escaped(root: Client) -> None:
    UserProfile.objects.ensure(PLANTED)
    failure = fail(PLANTED, error=PLANTED)
    urls = [change_url(failure), list_url(FailureGroup), change_url(EngineCall.objects.get()), INDEX]
    assert all("planted" in page(root, url) and PLANTED not in page(root, url) for url in urls)


@pytest.mark.slow
def test_pages_take_a_constant_number_of_queries(root: Client) -> None:
    failure = fail("ada")
    few = [queries_of(root, url) for url in (change_url(failure), list_url(FailureGroup))]
    fail(*(f"person-{number}" for number in range(30))), fail("bo", kind="timeout")
    many = [queries_of(root, url) for url in (change_url(failure), list_url(FailureGroup))]
    assert few == many and max(many) <= MAX_QUERIES
