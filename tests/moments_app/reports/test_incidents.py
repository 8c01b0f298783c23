"""Incidents: failures grouped by what distinguishes them from calls that succeed."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.engines.interface import CallRecord
from moments_app.models import Circuit, EngineCall, FailureGroup, Job, PromptResource, PromptVersion
from moments_app.prompts import MOMENT_BUILDER_URI
from moments_app.reports.incidents import Incident, incidents, incidents_of
from sessions_app.models import UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.streams import shard
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

ENGINE = "openai:gpt-4.1-mini"


def job_of(name: str, process: str = "build_moments") -> Job:
    session = talk(UserProfile.objects.ensure(name), 4, session_id=f"{process} of {name}")
    return Job.objects.request(process, session, requested_by="test")


def call(job: Job, kind: str = "", *, engine: str = ENGINE, version: PromptVersion | None = None) -> None:
    record = CallRecord("moment-builder", engine, 5, error_kind=kind, error=f"{engine} failed." if kind else "")
    EngineCall.objects.record(record, job=job, prompt_version=version)


def fail(name: str, kind: str = "server_error", *, process: str = "build_moments", times: int = 1, **how: Any) -> Job:
    """Create a job of a person whose calls failed. It waits for a retry."""
    job = job_of(name, process)
    for _ in range(times):
        call(job, kind, **how)
    failure = FailureGroup.objects.get(process=process, kind=kind, engine=how.get("engine", ENGINE))
    later = timezone.now() + timedelta(minutes=1)
    Job.objects.filter(pk=job.pk).update(failure=failure, run_after=later, held_by="backoff", held_since=timezone.now())
    return job


def fail_for_good(name: str, kind: str = "server_error", **how: Any) -> Job:
    job = fail(name, kind, **how)
    Job.objects.filter(pk=job.pk).update(status="failed", finished_at=timezone.now())
    return job


def answer(*names: str, **how: Any) -> None:
    for name in names:
        job = job_of(name)
        call(job, **how)
        Job.objects.filter(pk=job.pk).update(status="completed")


def the_only() -> Incident:
    [incident] = incidents()
    return incident


def test_without_failures_there_are_no_incidents(ada: UserProfile) -> None:
    answer("ada")
    assert incidents() == []


def fail_alone(name: str, *others: str, kind: str = "server_error", **how: Any) -> Job:
    """Create a job of a person whose calls fail while others are answered."""
    job = fail(name, kind, times=2, **how)
    answer(*others)
    call(job, kind)
    return job


class TestOnePerson:
    """The person is the cause if others are answered in between."""

    def test_row_50_an_incident_names_the_person_and_an_answered_call_for_another(self) -> None:
        fail_alone("ada", "bo", "cy")
        incident = the_only()
        assert incident.cause == "Calls about ada fail"
        assert incident.evidence.startswith("All 3 calls about ada have failed since ")
        assert "2 calls about 2 other people were answered during this time." in incident.evidence
        assert "The same prompt for cy was answered at " in incident.evidence
        assert incident.remedy.startswith("The engine answers other calls, so waiting doesn't help.")

    def test_row_50_all_failures_of_a_person_are_one_incident(self) -> None:
        fail("ada", "timeout", process="form_memories"), fail_alone("ada", "bo")
        incident = the_only()
        assert (incident.people, incident.jobs, len(incident.failures)) == (1, 2, 2)

    def test_row_50_chance_failures_of_others_are_a_separate_incident(self) -> None:
        fail("bo"), fail("cy"), fail_alone("ada", "dora")
        of_ada, of_engine = sorted(incidents(), key=lambda incident: incident.people)
        assert (of_ada.cause, list(of_ada.names.values())) == ("Calls about ada fail", ["ada"])
        assert of_engine.cause == f"{ENGINE} sometimes answers with server errors"
        assert set(of_engine.names.values()) == {"bo", "cy"}
        assert of_engine.remedy == "Nothing to do now: the jobs are retried automatically."

    def test_a_person_who_was_answered_later_is_not_the_cause(self) -> None:
        call(fail_alone("ada", "bo"))
        assert the_only().cause == f"{ENGINE} sometimes answers with server errors"

    def test_people_who_failed_in_an_outage_are_not_the_cause_afterwards(self) -> None:
        fail_for_good("ada", times=3), fail_for_good("bo", times=3)
        answer("cy")
        assert the_only().people == 2

    @pytest.mark.slow
    def test_more_than_a_few_people_share_one_incident(self) -> None:
        for number in range(5):
            fail_alone(f"person-{number}", "bo", kind="rejected")
        assert (the_only().cause, the_only().people) == ("Calls about 5 people fail", 5)
        assert (len(the_only().names), the_only().more_people) == (3, 2)

    def test_the_cause_is_uncertain_if_nobody_else_called(self) -> None:
        job = fail("ada", times=2)
        open_circuit(failing=[job.subject])
        incident = the_only()
        assert incident.cause == "Calls about ada fail"
        assert "the engine may be the cause too" in incident.evidence


def open_circuit(*held: Job, engine: str = ENGINE, work: str = "text", **fields: Any) -> Circuit:
    fields = {"reason": "server_error", "error": f"{engine} answered with status 500."} | fields
    fields = {"next_probe_at": timezone.now() + timedelta(minutes=1)} | fields
    circuit = Circuit.objects.create(engine=engine, work=work, state="open", **fields)
    for job in held:
        Job.objects.filter(pk=job.pk).update(circuit=circuit, held_by="circuit", held_since=timezone.now())
    return circuit


class TestAnEngine:
    """The engine is the cause if no calls are answered."""

    @pytest.mark.slow
    def test_one_outage_is_one_incident_that_counts_each_job_once(self) -> None:
        processes = ("build_moments", "form_memories", "roll_summary", "settle")
        failed = [fail(f"person-{number}", process=process) for number, process in enumerate(processes)]
        held = [job_of(f"another-{number}") for number in range(22)]
        open_circuit(*failed, *held, holds_all=True)
        incident = the_only()
        assert incident.cause == f"{ENGINE} answers with server errors"
        assert (incident.jobs, incident.people, incident.failed) == (26, 26, 0)
        assert incident.evidence == "No call was answered in the last day."
        assert "No job is lost: all jobs run when the engine answers. The next test is at " in incident.remedy

    def test_without_held_jobs_the_next_job_is_the_test(self) -> None:
        failed = fail("ada")
        circuit = open_circuit(holds_all=True, next_probe_at=timezone.now() - timedelta(minutes=8))
        Job.objects.filter(pk=failed.pk).update(status=Job.Status.FAILED, run_after=timezone.now())
        assert circuit in the_only().circuits
        assert "This engine's next job will test it." in the_only().remedy

    def test_an_unavailable_endpoint_is_one_incident_for_texts_and_vectors(self, settings: Settings) -> None:
        settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"base_url": settings.ENGINE.base_url})
        fail("ada"), fail("bo", process="embed", engine="openai:embedder")
        open_circuit(holds_all=True), open_circuit(engine="openai:embedder", work="embedding", holds_all=True)
        assert the_only().cause == f"openai:embedder and {ENGINE} answers with server errors"

    def test_a_failure_with_held_jobs_is_an_incident(self) -> None:
        failure = fail_for_good("ada").failure
        Job.objects.update(status="completed")
        open_circuit(*(job_of(f"person-{number}") for number in range(8)), holds_all=True)
        failure = FailureGroup.objects.with_stalled().get()
        assert failure.stalled == 8
        [incident] = incidents_of(failure)
        assert incident.jobs == 8

    def test_retrying_all_is_suggested_only_after_a_successful_call(self) -> None:
        fail_for_good("ada", "timeout"), fail_for_good("bo", "timeout")
        assert "Retry all" not in the_only().remedy and "Try one" in the_only().remedy
        answer("cy")
        assert the_only().remedy == "The engine has answered since then. Press Retry all."

    def test_a_rejected_key_is_distinguished_from_an_outage(self) -> None:
        fail("ada", "credential")
        open_circuit(holds_all=True, reason="credential")
        assert the_only().cause == f"{ENGINE} rejects the API key"
        assert the_only().remedy.startswith("Correct the API key in the settings and restart. The next test is at ")


def test_searches_use_words_only_while_no_query_can_be_embedded() -> None:
    open_circuit(engine="openai:embedder", work="query", error="It is down.")
    assert the_only().cause == "Searches use words only: It is down."


def test_a_prompt_is_the_cause_if_other_prompts_are_answered() -> None:
    prompt = PromptResource.objects.get(uri=MOMENT_BUILDER_URI)
    good = prompt.versions.get()
    bad = PromptVersion.objects.create(resource=prompt, number=2, content="Be wrong.", created_by="operator:eve")
    answer("ada", version=good)
    fail("bo", "invalid_answer", version=bad), fail("cy", "invalid_answer", version=bad)
    incident = the_only()
    assert incident.cause == f"Version 2 of the prompt {prompt.name} gets invalid answers"
    assert incident.remedy.startswith("Activate version 1, which got 1 valid answers.")


def test_a_bug_is_one_incident_for_all_processes_that_it_stops(ada: UserProfile, bo: UserProfile) -> None:
    for name, process in (("ada", "build_moments"), ("bo", "form_memories")):
        job = job_of(name, process)
        failure = FailureGroup.objects.find(job, process, "defect", place="KeyError in read, line 7 of turns/read.py")
        Job.objects.filter(pk=job.pk).update(failure=failure, status="failed", finished_at=timezone.now())
    incident = the_only()
    assert incident.cause == "A bug in the platform: KeyError in read, line 7 of turns/read.py"
    assert incident.loss == (
        "Unless the failed jobs are retried, these stay missing: moments of new messages (1 job), facts from new "
        "messages (1 job)."
    )


def mute(incident: Incident) -> None:
    for failure in incident.failures:
        failure.mute(incident.key, actor="operator:eve")


class TestMuting:
    """A muted incident is shown last and does not disappear."""

    def test_a_muted_incident_stays_and_is_last(self) -> None:
        fail_for_good("ada", "rejected"), fail("bo", "invalid_answer")
        mute(incidents()[0])
        assert [incident.is_muted for incident in incidents()] == [False, True]

    def test_another_incident_with_the_same_failure_is_not_muted(self) -> None:
        fail("bo"), fail_alone("ada", "cy")
        [of_engine, of_ada] = sorted(incidents(), key=lambda incident: incident.cause, reverse=True)
        assert of_engine.failures == of_ada.failures
        mute(of_ada)
        assert {incident.cause: incident.is_muted for incident in incidents()} == {
            of_ada.cause: True,
            of_engine.cause: False,
        }
        of_ada.failures[0].unmute(of_ada.key)
        assert not any(incident.is_muted for incident in incidents())

    @pytest.mark.parametrize("end", ["complete", "skip", "cancel"])
    def test_the_next_incident_of_the_same_cause_is_not_muted(self, end: str) -> None:
        job = fail("ada", "invalid_answer")
        mute(the_only())
        ended = Job.objects.get(pk=job.pk)
        if end == "cancel":
            ended.cancel(actor="operator:eve")
        else:
            Job.objects.filter(pk=job.pk).update(status="processing")
            ended.complete({}) if end == "complete" else ended.skip("Nothing to do.")
        assert FailureGroup.objects.get().muted_causes == []
        fail("ada", "invalid_answer")
        assert not the_only().is_muted

    def test_the_next_incident_of_a_person_is_not_muted_while_others_fail_too(self) -> None:
        fail("bo"), fail_alone("ada", "cy")
        [of_ada] = [incident for incident in incidents() if incident.is_of_people]
        mute(of_ada)
        for job in Job.objects.filter(user__user_id="ada"):
            job.cancel(actor="operator:eve")
        assert FailureGroup.objects.get().muted_causes == []
        assert Job.objects.stalled().exists()

    def test_an_incident_whose_jobs_were_deleted_is_over(self) -> None:
        fail("ada", "invalid_answer")
        mute(the_only())
        Job.objects.all().delete()
        fail("ada", "invalid_answer")
        assert not the_only().is_muted

    def test_an_outage_that_holds_all_jobs_is_not_muted(self) -> None:
        fail("ada")
        mute(the_only())
        assert the_only().is_muted
        open_circuit(job_of("bo"), holds_all=True)
        assert not the_only().is_muted


def test_a_job_that_runs_again_keeps_its_incident_open() -> None:
    job = fail_for_good("ada", "rejected")
    Job.objects.get(pk=job.pk).restart()
    assert (the_only().failed, the_only().waiting) == (0, 1)
    Job.objects.update(status="processing")
    assert the_only().waiting == 1
    Job.objects.update(status="completed")
    assert incidents() == []


class TestItsJobs:
    """An incident has the jobs of its cause, and none of other incidents with the same failure."""

    def test_row_50_the_incident_of_a_person_has_their_jobs(self) -> None:
        of_engine, of_ada = fail("bo"), fail_alone("ada", "cy")
        found = {incident.cause: list(incident.stalled()) for incident in incidents()}
        assert found == {
            "Calls about ada fail": [of_ada],
            f"{ENGINE} sometimes answers with server errors": [of_engine],
        }

    def test_jobs_without_a_person_belong_to_the_incident_of_the_engine(self) -> None:
        fail_alone("ada", "cy")
        of_shard = Job.objects.request("consolidate_stream", stream=shard("kilns"), requested_by="test")
        call(of_shard, "server_error")
        failure = FailureGroup.objects.get(process="consolidate_stream")
        Job.objects.filter(pk=of_shard.pk).update(failure=failure, status="failed", finished_at=timezone.now())
        [incident] = incidents_of(failure)
        assert list(incident.stalled()) == [of_shard]


def seconds(people: int) -> float:
    """Add people with failed jobs; return the shortest of three times that reading the incidents takes."""
    there, failure = UserProfile.objects.count(), FailureGroup.objects.get()
    names = (f"person-{number}" for number in range(there, there + people))
    users = UserProfile.objects.bulk_create(UserProfile(user_id=name, application_id=DEFAULT) for name in names)
    fields: dict[str, Any] = {"process": "build_moments", "status": "failed", "finished_at": timezone.now()}
    jobs = Job.objects.bulk_create(Job(user=user, failure=failure, requested_by="test", **fields) for user in users)
    EngineCall.objects.bulk_create(
        EngineCall(job=job, purpose="moment-builder", engine=ENGINE, latency_ms=5, ok=not kind, error_kind=kind)
        for kind in ("", "server_error", "server_error")
        for job in jobs
    )
    times = []
    for _ in range(3):
        began = time.process_time()
        incidents()
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.slow(seconds=30)
def test_the_time_is_linear_in_the_number_of_failures() -> None:
    fail("ada")
    few = seconds(50)
    assert seconds(8_000) < 25 * few


@pytest.mark.slow
def test_incidents_take_a_constant_number_of_queries(django_assert_max_num_queries: Any) -> None:
    fail_alone("ada", "bo")
    open_circuit(job_of("cy"), holds_all=True)
    with django_assert_max_num_queries(6):
        incidents()
    for number in range(30):
        fail(f"person-{number}", "timeout")
        answer(f"another-{number}")
    with django_assert_max_num_queries(6):
        incidents()
