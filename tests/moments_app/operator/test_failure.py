"""Failures as an operator sees them: each cause once, whom it hit, what waits, and what is to be done."""

import re

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from moments_app.engines.interface import CallRecord, Exchange
from moments_app.models import Circuit, EngineCall, FailureGroup, Job
from moments_app.models.engine_call import EngineCallQuerySet
from sessions_app.models import Event, UserProfile
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = "/admin/"
ENGINE = "openai:gpt-4.1-mini"
CALLS: EngineCallQuerySet = EngineCall.objects  # type: ignore[assignment]


def fail(*names: str, kind: str = "invalid_answer", error: str = "It gave no valid answer.") -> FailureGroup:
    """A build of each of these people that failed so."""
    for name in names:
        session = talk(UserProfile.objects.ensure(name), 30)
        job = Job.objects.request("build_moments", session, requested_by="append")
        said = Exchange(f"What {name} said.", f"No, {name}.")
        CALLS.keep(CallRecord("moment-builder", ENGINE, 5, error_kind=kind, error=error, exchange=said), job=job)
        failure = FailureGroup.objects.get(kind=kind)
        Job.objects.filter(pk=job.pk).update(status="failed", failure=failure, error=error)
    return failure


def press(client: Client, failure: FailureGroup, button: str) -> int:
    return client.post(reverse(f"admin:moments_app_failuregroup_{button}", args=[failure.pk])).status_code


def test_the_dashboard_says_in_a_sentence_what_is_wrong_and_what_to_do(root: Client) -> None:
    failure = fail("ada", "bo", "cy")
    shown = page(root, INDEX)
    assert (
        f"build_moments has failed for 0\xa0minutes (invalid answer, {ENGINE}): 3 unfinished jobs of 3 people. Read one"
        in shown
    )
    assert "of the failed answers, change the prompt or the model, then press Retry all." in shown
    assert "failed for good" not in shown  # the sentence has counted them
    assert change_url(failure) in shown
    assert "model calls failed today" not in shown  # its cause is told


def test_the_sentence_counts_those_who_have_nothing_to_do_with_it(root: Client, bo: UserProfile) -> None:
    fail("ada", kind="unavailable", error="It is away.")
    circuit = Circuit.objects.create(engine=ENGINE, work="text", state="open", holds_all=True)
    other = Job.objects.request("build_moments", talk(bo, 30), requested_by="append")
    Job.objects.filter(pk=other.pk).update(circuit=circuit)
    shown = page(root, INDEX)
    assert "1 unfinished job of 1 person; 1 job, no matter whose, on hold until the engine responds." in shown
    assert "The circuit" not in shown  # it is told once


def test_the_alarm_is_over_when_all_was_tried_again(root: Client) -> None:
    failure = fail("ada", "bo")
    assert press(root, failure, "retry") == 302
    assert set(Job.objects.values_list("status", flat=True)) == {"queued"}
    shown = page(root, INDEX)
    assert "build_moments has failed" not in shown and "failed today" not in shown
    assert "2 jobs due now" in shown


@pytest.mark.slow
def test_a_failure_that_somebody_muted_is_told_no_more_until_it_is_unmuted(root: Client) -> None:
    failure = fail("ada")
    assert press(root, failure, "mute") == 302
    assert "build_moments has failed" not in page(root, INDEX)
    assert "operator:root" in page(root, change_url(failure))
    assert press(root, failure, "unmute") == 302
    assert "build_moments has failed" in page(root, INDEX)


@pytest.mark.slow
def test_its_page_says_what_they_share_and_what_is_not_remembered(root: Client) -> None:
    failure = fail("ada", "bo")
    Circuit.objects.create(engine=ENGINE, work="text", state="open", holds_all=True)
    shown = page(root, change_url(failure))
    assert "Endpoint" in shown and f"{ENGINE} (all)" in shown
    assert "ada</a> (1)" in shown and "bo</a> (1)" in shown
    assert "60 turns without a moment in 2 sessions" in shown
    assert "including jobs of people who are not affected by the failure" in shown and "Try now" in shown
    job = Job.objects.first()
    assert job is not None and change_url(job) in shown
    assert change_url(failure) in page(root, change_url(job)) and "0–29</a> not read yet" in page(root, change_url(job))


@pytest.mark.slow
def test_the_list_has_each_cause_once_below_providers_and_lanes(root: Client, settings: Settings) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"provider": "openai"})
    fail("ada", "bo", "cy"), fail("dora", kind="timeout", error="It did not answer within 60 s.")
    Circuit.objects.create(engine=ENGINE, work="text", state="open", holds_all=True, error="It is away.")
    shown = page(root, list_url(FailureGroup))
    assert shown.count("build_moments: invalid answer") == 1 and shown.count("build_moments: timeout") == 1
    assert "It gave no valid answer." in shown and "It is away." in shown
    assert "waited" in shown and "bulk" in shown and f"Try {ENGINE}, text now" in shown
    assert f"build_moments: timeout · {ENGINE}" not in page(root, list_url(FailureGroup), muted="1")


def test_what_was_said_is_shown_to_those_who_may_read_people_and_noted(root: Client) -> None:
    fail("ada")
    call = EngineCall.objects.get()
    shown = page(root, change_url(call))
    assert "What ada said." in shown and "No, ada." in shown
    assert Event.objects.filter(user_pk=UserProfile.objects.get().pk, actor="operator:root").exists()
    seen = page(operator("view_"), change_url(call))
    assert "What ada said." not in seen and "you need permission" in seen


def test_trying_all_again_is_asked_about_with_how_many_it_reaches(root: Client) -> None:
    shown = page(root, change_url(fail("ada", "bo", "cy")))
    assert "Retry all…" in shown and "Up to 500 failed jobs" in shown
    assert re.search(r'<details class="rem-confirm">(?:(?!</details>).)*Retry 3 jobs</button>', shown, re.S)


def test_row_18_a_viewer_sees_it_and_changes_nothing() -> None:
    failure = fail("ada")
    viewer = operator("view_")
    assert "Retry all…" not in page(viewer, change_url(failure))
    assert [press(viewer, failure, button) for button in ("retry", "mute", "unmute")] == [403] * 3
    assert Job.objects.get().status == "failed"
    assert Permission.objects.filter(codename="view_failuregroup").exists()


@pytest.mark.slow
def test_row_18_scripts_in_errors_and_answers_are_text(root: Client) -> None:
    UserProfile.objects.ensure(PLANTED)
    failure = fail(PLANTED, error=PLANTED)
    urls = [change_url(failure), list_url(FailureGroup), change_url(EngineCall.objects.get()), INDEX]
    assert all("planted" in page(root, url) and PLANTED not in page(root, url) for url in urls)


@pytest.mark.slow
def test_they_take_the_same_queries_however_much_failed(root: Client) -> None:
    failure = fail("ada")
    few = [queries_of(root, url) for url in (change_url(failure), list_url(FailureGroup))]
    fail(*(f"person-{number}" for number in range(30))), fail("bo", kind="timeout")
    many = [queries_of(root, url) for url in (change_url(failure), list_url(FailureGroup))]
    assert few == many and max(many) <= MAX_QUERIES
