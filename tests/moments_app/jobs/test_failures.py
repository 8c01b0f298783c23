"""Failures grouped by cause, the exchanges of failed calls, and retrying all jobs."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import retry_all, retry_one
from moments_app.models import Circuit, EngineCall, FailureGroup, Job, KeptExchange
from moments_app.reports.housekeeping import housekeeping
from sessions_app.models import UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.retention.archive_files import ArchiveError
from tests.support import openai_server as behave
from tests.support.jobs import build, ran
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

ENGINE = "openai:gpt-4.1-mini"


@pytest.fixture(autouse=True)
def _one_attempt(model_server: OpenAIServer, settings: Settings) -> None:
    settings.JOBS = settings.JOBS.model_copy(update={"max_attempts": 1})


def failed(*names: str) -> list[Job]:
    """Run a build for each of these people in order; return the jobs."""
    return [build(talk(UserProfile.objects.ensure(name), 30)) for name in names]


@pytest.mark.slow
def test_failures_with_one_cause_form_one_group_of_jobs_and_calls(model_server: OpenAIServer) -> None:
    model_server.always(behave.content('{"moments": "none"}'))
    jobs = failed("ada", "bo", "cy")
    [failure] = FailureGroup.objects.with_stalled()
    assert (failure.process, failure.engine, failure.kind) == ("build_moments", ENGINE, "invalid_answer")
    assert (failure.stalled, failure.count) == (3, 6)  # each is called twice
    assert {job.failure_id for job in jobs} == {failure.pk}
    assert EngineCall.objects.filter(failure=failure).count() == 6
    assert sum(count for _, count in failure.by_hour()) == 6


@pytest.mark.slow
def test_another_cause_forms_another_group(model_server: OpenAIServer) -> None:
    model_server.always(behave.content("no"))
    failed("ada")
    model_server.always(behave.error(400))
    failed("bo")
    assert set(FailureGroup.objects.values_list("kind", flat=True)) == {"invalid_answer", "rejected"}


def test_bugs_and_failed_steps_are_grouped_by_their_place_in_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("hemlock")

    monkeypatch.setattr("moments_app.moments.build.BuildMoments.think", fail)
    failed("ada", "bo")
    [failure] = FailureGroup.objects.all()
    assert (failure.kind, failure.engine, failure.count) == ("defect", "", 2)
    assert failure.place.startswith("KeyError in fail, line") and "hemlock" not in failure.error


def test_a_damaged_archive_is_not_a_bug(ada: UserProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ArchiveError("The file is missing.")

    monkeypatch.setattr("moments_app.moments.build.BuildMoments.claim", fail)
    failed("ada")
    assert FailureGroup.objects.get().kind == "archive"


@pytest.mark.slow
def test_retrying_a_group_makes_its_jobs_due_and_ends_it(model_server: OpenAIServer) -> None:
    model_server.always(behave.content("no"))
    jobs = failed("ada", "bo")
    model_server.always(behave.answer_well)
    assert str(retry_all(Job.objects.all(), actor="operator:eve")) == "2 jobs due now"
    assert FailureGroup.objects.with_stalled().get().stalled == 2, "the failure ends only when its jobs are done"
    assert [ran(job).status for job in jobs] == ["completed"] * 2
    assert not FailureGroup.objects.with_stalled().get().stalled
    assert str(retry_all(Job.objects.all(), actor="operator:eve")) == "0 jobs due now"


@pytest.mark.slow
def test_one_job_can_be_retried_as_a_test(model_server: OpenAIServer) -> None:
    model_server.always(behave.content("no"))
    failed("ada", "bo")
    job = retry_one(Job.objects.all())
    assert job is not None and ran(job).status == "failed"
    model_server.always(behave.answer_well)
    job = retry_one(Job.objects.all())
    assert job is not None and ran(job).status == "completed"
    assert FailureGroup.objects.with_stalled().get().stalled == 1


def test_retrying_skips_a_job_whose_work_is_queued_again(model_server: OpenAIServer) -> None:
    model_server.always(behave.content("no"))
    [job] = failed("ada")
    Job.objects.request("build_moments", job.session, requested_by="test", force=True)
    retried = retry_all(Job.objects.all(), actor="operator:eve")
    assert (retried.jobs, retried.not_needed, retried.left) == (0, 1, 0)


def test_retrying_a_group_sends_a_probe_to_the_engine(
    model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 3_600)
    model_server.always(behave.error(401))
    failed("ada")
    before = Circuit.objects.get()
    assert before.is_open and not before.is_probe_due
    retry_all(Job.objects.all(), Circuit.objects.all(), actor="operator:eve")
    assert Circuit.objects.get().is_probe_due


@pytest.mark.slow
def test_exchanges_of_failed_calls_are_kept_encrypted_for_days(model_server: OpenAIServer, settings: Settings) -> None:
    model_server.always(behave.content("I would rather not."))
    failed("ada")
    first = KeptExchange.objects.order_by("id")[0]
    assert b"rather" not in bytes(first.sealed) and first.exchange is not None
    assert "Turn 3 is about" in first.exchange.asked and "I would rather not." in first.exchange.answered
    assert "sk-marked-key" not in first.exchange.asked
    assert "rather" not in str(EngineCall.objects.values_list("error", flat=True))
    KeptExchange.objects.update(created_at=timezone.now() - timedelta(days=8))
    assert housekeeping().failed_calls_texts == 2
    settings.ENGINE = settings.ENGINE.model_copy(update={"keep_failed_days": 0})
    failed("bo")
    assert not KeptExchange.objects.exists()


def test_answers_of_errors_are_not_kept_as_they_may_quote_the_key(model_server: OpenAIServer) -> None:
    model_server.always(behave.error(400, detail="The key sk-marked-key is not mine."))
    failed("ada")
    exchange = KeptExchange.objects.order_by("id")[0].exchange
    assert exchange is not None and exchange.asked and not exchange.answered


def test_exchanges_of_successful_calls_are_not_kept(model_server: OpenAIServer) -> None:
    failed("ada")
    assert EngineCall.objects.filter(ok=True).exists()
    assert not KeptExchange.objects.exists() and not FailureGroup.objects.exists()


@pytest.mark.slow
def test_row_11_kept_exchanges_are_erased_with_the_person(model_server: OpenAIServer) -> None:
    model_server.always(behave.content("no"))
    failed("ada", "bo")
    erase_user("ada", application=DEFAULT, actor="test")
    assert set(KeptExchange.objects.values_list("user__user_id", flat=True)) == {"bo"}
    assert FailureGroup.objects.with_stalled().get().stalled == 1


def test_groups_without_waiting_jobs_are_deleted_after_days(model_server: OpenAIServer) -> None:
    model_server.always(behave.content("no"))
    failed("ada")
    FailureGroup.objects.update(last_seen_at=timezone.now() - timedelta(days=60))
    assert housekeeping().failures == 0
    Job.objects.update(status="completed")
    assert housekeeping().failures == 1
    assert Job.objects.get().failure is None
