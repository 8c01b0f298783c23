"""Circuits: a failing engine gets only probes, and a person's failing text delays nobody else."""

import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.conf import EmbeddingSettings
from moments_app.engines.interface import CallRecord
from moments_app.jobs.process import Lane, names_in
from moments_app.jobs.runner import run_claimed, run_job
from moments_app.models import Circuit, EmbeddingModel, Job
from moments_app.models.circuit import GIVE_UP_AFTER
from moments_app.models.job import JobQuerySet
from moments_app.recall.query import with_vector
from moments_app.recall.request import RecallRequest
from sessions_app.models import Event, Message, Session, UserProfile
from tests.support import openai_server as behave
from tests.support.commands import printed
from tests.support.concurrency import at_once
from tests.support.jobs import ran
from tests.support.openai_server import Behaviour, Handler, OpenAIServer
from tests.support.transcript import talk
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

ENGINE = "openai:gpt-4.1-mini"
POISON = "hemlock"


@pytest.fixture(autouse=True)
def _circuits(model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 30)
    monkeypatch.setattr("moments_app.models.circuit.FIRST_PROBE_SECONDS", 30)


def asked(name: str, session_id: str = "s1", text: str = "") -> Job:
    session = talk(UserProfile.objects.ensure(name), 30, session_id=session_id, text=text)
    return Job.objects.request("build_moments", session, requested_by="test", force=True)


def circuit() -> Circuit:
    return Circuit.objects.get(engine=ENGINE, work="text")


def opened(model_server: OpenAIServer, *more: str) -> list[Job]:
    """Open the circuit with jobs of Ada and Bo. Return their jobs and those of others, all held."""
    model_server.always(behave.error(500))
    jobs = [asked(name) for name in ("ada", "bo", *more)]
    for job in jobs:
        run_job(job.job_id)  # None, because it is held with others
    assert circuit().is_open
    assert Job.objects.held().count() == len(jobs)
    return jobs


def send_probe() -> Job:
    """Send the probe that is due, and return its job."""
    Circuit.objects.update(next_probe_at=timezone.now() - timedelta(seconds=1))
    Circuit.objects.send_probes()
    return builds().due().get()


def work_off_what_is_due() -> None:
    while job := Job.objects.claim_next(["settle", "build_moments"], after=Job.FIRST_SUBJECT):
        run_claimed(job)


def builds() -> JobQuerySet:
    return Job.objects.filter(process="build_moments")


def fails_on(text: str, way: Behaviour) -> Behaviour:
    def answer(handler: Handler, body: dict[str, Any]) -> None:
        (way if text in str(body) else behave.answer_well)(handler, body)

    return answer


class TestOpening:
    """The kind of an error decides what happens."""

    @pytest.mark.parametrize("way", [behave.error(500), behave.error(429), behave.hang_up])
    def test_row_30_failures_of_two_people_in_a_row_hold_all_jobs(
        self, model_server: OpenAIServer, way: Behaviour
    ) -> None:
        model_server.always(way)
        for name in ("ada", "bo", "cy", "di"):
            waiting = ran(asked(name))
        assert len(model_server.requests) == 2
        assert (waiting.status, waiting.attempts, waiting.is_held) == ("queued", 0, True)
        assert "The circuit" in waiting.error
        assert list(Event.objects.filter(type__startswith="circuit").values_list("type", flat=True)) == [
            "circuit_opened"
        ]

    @pytest.mark.slow
    def test_an_answer_between_errors_keeps_the_circuit_closed(self, model_server: OpenAIServer) -> None:
        model_server.queue(behave.error(500), behave.answer_well, behave.error(500), behave.answer_well)
        assert [ran(asked(name)).status for name in "abcd"] == ["queued", "completed", "queued", "completed"]
        assert not Circuit.objects.open().exists()

    @pytest.mark.parametrize("status", [401, 402, 404])
    def test_row_30_a_refused_key_url_or_quota_opens_the_circuit_at_once(
        self, model_server: OpenAIServer, status: int
    ) -> None:
        model_server.always(behave.error(status))
        ran(asked("ada")), ran(asked("bo"))
        assert len(model_server.requests) == 1
        assert Job.objects.held().filter(attempts=0).count() == 2

    @pytest.mark.slow
    def test_row_30_rejected_texts_and_invalid_answers_never_open_the_circuit(self, model_server: OpenAIServer) -> None:
        for way in (behave.error(400), behave.error(422), behave.raw("garbage")):
            model_server.always(way)
            for name in ("ada", "bo", "cy"):
                assert ran(asked(name)).attempts > 0
        assert not Circuit.objects.open().exists()

    def test_a_call_that_we_aborted_does_not_count_against_the_engine(self, ada: UserProfile, bo: UserProfile) -> None:
        for name in ("ada", "bo"):
            record = CallRecord("p", ENGINE, 1, error_kind="unavailable", is_aborted=True)
            Circuit.objects.record(record, "text", job=asked(name))
        assert not Circuit.objects.exists()

    @pytest.mark.slow
    def test_zero_seconds_disable_circuits_and_release_held_jobs(
        self, model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened(model_server)
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 0)
        Circuit.objects.send_probes()
        assert builds().due().count() == 2 and not Circuit.objects.open().exists()
        for job in builds().due():
            assert not ran(job).is_held


class TestHolding:
    """Held jobs cost nothing."""

    @pytest.mark.slow
    def test_one_query_holds_all_due_jobs_and_no_worker_claims_them(self, model_server: OpenAIServer) -> None:
        opened(model_server)
        waiting = [asked("cy", session_id=f"s{number}") for number in range(20)]
        with CaptureQueriesContext(connection) as queries:
            ran(waiting[0])
        assert Job.objects.held().count() == 22
        assert len(queries) < 25
        assert Job.objects.claim_next(["build_moments"], after=Job.FIRST_SUBJECT) is None
        assert Job.objects.oldest_wait() == 0

    @pytest.mark.slow
    def test_row_30_an_answer_makes_all_held_jobs_due_at_once(self, model_server: OpenAIServer) -> None:
        jobs = opened(model_server, "cy", "di")
        model_server.always(behave.answer_well)
        assert ran(send_probe()).status == "completed"
        assert builds().due().count() == 3 and not Job.objects.held().exists()
        for job in builds().due():
            assert ran(job).status == "completed"
        assert {Job.objects.get(pk=job.pk).attempts for job in jobs[2:]} == {1}
        assert circuit().closed_by.startswith("job:")

    @pytest.mark.slow
    def test_jobs_of_another_engine_continue(self, model_server: OpenAIServer, settings: Settings) -> None:
        opened(model_server)
        model_server.always(behave.answer_well)
        settings.ENGINE = settings.ENGINE.model_copy(update={"model": "another"})
        assert ran(asked("cy")).status == "completed"


class TestProbes:
    """One job at a time probes an engine."""

    @pytest.mark.slow
    def test_row_30_only_one_of_many_workers_sends_a_probe(self, model_server: OpenAIServer) -> None:
        opened(model_server, "cy", "di")
        Circuit.objects.update(next_probe_at=timezone.now())
        at_once(lambda _: Circuit.objects.send_probes(), 8)
        assert builds().due().count() == 1
        assert timedelta(seconds=28) < circuit().next_probe_at - timezone.now() <= timedelta(seconds=30)

    @pytest.mark.slow
    def test_row_30_each_probe_is_another_job_and_does_not_count_as_an_attempt(
        self, model_server: OpenAIServer
    ) -> None:
        jobs = opened(model_server, "cy")
        before = [Job.objects.get(pk=job.pk).attempts for job in jobs]
        probes = [ran(send_probe()) for _ in range(6)]
        assert len(model_server.requests) == 2 + 6
        assert [job.user_id for job in probes[:3]] == [job.user_id for job in probes[3:]]
        assert len({job.pk for job in probes}) == 3
        assert [Job.objects.get(pk=job.pk).attempts for job in jobs] == before
        assert Job.objects.held().count() == 3

    def test_no_probe_precedes_its_time_or_the_endpoints_retry_time(self, model_server: OpenAIServer) -> None:
        model_server.always(behave.error(503, {"Retry-After": "90"}))
        ran(asked("ada")), ran(asked("bo"))
        Circuit.objects.send_probes()
        assert not builds().due().exists()
        assert timedelta(seconds=80) < circuit().next_probe_at - timezone.now() <= timedelta(seconds=90)

    @pytest.mark.slow
    def test_a_probe_that_calls_no_engine_is_followed_by_another(self, model_server: OpenAIServer) -> None:
        opened(model_server)
        probe = send_probe()
        Message.objects.filter(session=probe.session).delete()
        assert ran(probe).status == "skipped"
        Circuit.objects.send_probes()
        assert builds().due().get().pk != probe.pk

    @pytest.mark.slow
    def test_row_30_settling_is_held_and_probes_like_other_jobs(self, model_server: OpenAIServer) -> None:
        sessions = [talk(UserProfile.objects.ensure(name), 30) for name in ("ada", "bo", "cy")]
        model_server.always(behave.error(500))
        for session in sessions:
            run_job(Job.objects.request("settle", session, requested_by="test").job_id)
        Job.objects.later().update(run_after=timezone.now())  # the first job, which failed while the circuit was closed
        work_off_what_is_due()
        assert Job.objects.held().count() == 3
        for _ in range(3):
            Circuit.objects.update(next_probe_at=timezone.now())
            Circuit.objects.send_probes()
            work_off_what_is_due()
            assert Job.objects.held().filter(process="settle").count() == 3
        model_server.always(behave.answer_well)
        Circuit.objects.update(next_probe_at=timezone.now())
        Circuit.objects.send_probes()
        work_off_what_is_due()
        assert set(Session.objects.values_list("status", flat=True)) == {"cleared"}

    @pytest.mark.slow
    def test_the_next_job_is_the_probe_if_none_is_held(self, model_server: OpenAIServer) -> None:
        opened(model_server)
        Job.objects.all().delete()
        model_server.always(behave.answer_well)
        assert ran(asked("cy")).is_held
        Circuit.objects.update(next_probe_at=timezone.now())
        Job.objects.all().delete()
        assert ran(asked("di")).status == "completed"
        assert not circuit().is_open

    def test_a_circuit_without_held_jobs_closes_if_nothing_calls_its_engine(self, model_server: OpenAIServer) -> None:
        opened(model_server)
        Job.objects.all().delete()
        for overdue, is_open in ((timedelta(minutes=9), True), (timedelta(minutes=11), False)):
            Circuit.objects.update(next_probe_at=timezone.now() - overdue)
            Circuit.objects.send_probes()
            assert circuit().is_open is is_open

    def test_an_open_circuit_closes_if_its_jobs_use_another_engine(
        self, model_server: OpenAIServer, settings: Settings
    ) -> None:
        opened(model_server, "cy", "di")
        settings.ENGINE = settings.ENGINE.model_copy(update={"provider": "extractive"})
        assert ran(send_probe()).status == "completed"
        Circuit.objects.update(next_probe_at=timezone.now())
        Circuit.objects.send_probes()
        assert not circuit().is_open and builds().due().count() == 3


class TestAnEndpoint:
    """An unavailable endpoint is unavailable for all kinds of calls."""

    @pytest.mark.slow
    def test_row_30_circuits_of_one_endpoint_take_turns_with_probes_until_an_answer_makes_all_probes_due(
        self, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.EMBEDDING = EmbeddingSettings(base_url=f"{model_server.base_url}/", model="embedder", dimensions=64)
        jobs = opened(model_server)
        for job in jobs:
            run_job(Job.objects.request("embed", job.session, requested_by="test").job_id)
        assert Job.objects.held().filter(process="embed").count() == 2
        assert len(model_server.requests) == 2 + 1, "one failed call is enough if the endpoint is unavailable"
        probes = [ran(self.sent()).process for _ in range(4)]
        assert sorted(probes[:2]) == ["build_moments", "embed"] and probes[2:] == probes[:2]
        model_server.always(behave.answer_well)
        assert ran(self.sent()).process == probes[0]
        Circuit.objects.send_probes()
        [probe] = Job.objects.due().filter(process=probes[1], session__in=[job.session_id for job in jobs])
        assert ran(probe).status == "completed"
        assert not Circuit.objects.open().exists()

    def sent(self) -> Job:
        """Send the probes of all circuits; return the only one."""
        Circuit.objects.update(next_probe_at=timezone.now() - timedelta(seconds=1))
        Circuit.objects.send_probes()
        return Job.objects.due().get()

    @pytest.mark.slow
    def test_row_30_another_endpoint_has_its_own_probes(self, model_server: OpenAIServer) -> None:
        jobs = opened(model_server)
        for job in jobs:
            record = CallRecord("embedding", "openai:embedder", 1, error_kind="server_error", error="No.")
            Circuit.objects.record(record, "embedding", job=job)
            assert Circuit.objects.open().count() == (2 if job is jobs[-1] else 1), "two failed calls open the circuit"
        due = timezone.now() - timedelta(seconds=1)
        Circuit.objects.update(next_probe_at=due)
        Circuit.objects.send_probes()
        assert Circuit.objects.get(work="embedding").next_probe_at == due, "no job waits for this probe yet"


class TestOnePersonsText:
    """A text that makes an engine fail only affects its person."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("status", "others"), [(500, 10), (403, 3), (400, 3)])
    def test_row_30_a_text_that_always_fails_delays_no_others_and_fails_visibly(
        self, model_server: OpenAIServer, status: int, others: int
    ) -> None:
        way = behave.error(status)
        model_server.always(fails_on(POISON, way))
        assert ran(asked("zoe")).status == "completed"
        bad = asked("ada", text=POISON)
        ran(bad)
        if Circuit.objects.open().exists():  # considered a refused key, until the first answer to another person
            ran(asked("bo"))
            assert ran(send_probe()).status == "completed"
        for number in range(others):
            Job.objects.filter(pk=bad.pk).update(run_after=timezone.now())
            run_job(bad.job_id)
            good = ran(asked(f"person {number}"))
            assert (good.status, good.attempts) == ("completed", 1)
        bad.refresh_from_db()
        assert (bad.status, bad.attempts) == ("failed", 3)
        assert "status" in bad.error

    @pytest.mark.slow
    def test_row_30_two_failures_of_one_person_in_a_row_hold_no_jobs_of_others(
        self, model_server: OpenAIServer
    ) -> None:
        model_server.always(fails_on(POISON, behave.error(500)))
        first, second = asked("ada", text=POISON), asked("ada", session_id="s2", text=POISON)
        ran(first), ran(second)
        assert circuit().is_open and "for one person" in circuit().why
        assert ran(asked("ada", session_id="s3")).is_held
        assert ran(asked("bo")).status == "completed"
        assert not circuit().is_open and not Job.objects.held().exists()

    @pytest.mark.slow
    def test_row_30_the_only_person_loses_nothing_in_an_outage(self, model_server: OpenAIServer) -> None:
        model_server.always(behave.error(500))
        job = asked("ada")
        ran(job), ran(job)
        for _ in range(10):
            assert ran(send_probe()).is_held
        model_server.always(behave.answer_well)
        assert ran(send_probe()).status == "completed"

    @pytest.mark.slow
    def test_row_30_a_job_of_the_only_person_fails_eventually(self, model_server: OpenAIServer) -> None:
        model_server.always(behave.error(500))
        job = asked("ada")
        ran(job), ran(job)
        long_ago = timezone.now() - GIVE_UP_AFTER
        Circuit.objects.update(since=long_ago)
        assert ran(send_probe()).is_held  # the job's own limit has not passed
        Job.objects.update(queued_at=long_ago)
        assert ran(send_probe()).status == "failed"
        assert circuit().is_open and not Job.objects.open().exists()


class TestIsolation:
    """A person whose calls fail while others are answered delays nobody."""

    @pytest.fixture
    def bad(self, model_server: OpenAIServer) -> Job:
        """Return the job of a person whose text always fails, after a job of another person completed."""
        model_server.always(fails_on(POISON, behave.error(500)))
        job = ran(asked("ada", text=POISON))
        assert ran(asked("bo")).status == "completed"
        return job

    def again(self, job: Job) -> Job | None:
        Job.objects.filter(pk=job.pk).update(run_after=timezone.now())
        return run_job(job.job_id)

    @pytest.mark.slow
    def test_row_50_single_failures_of_others_next_to_a_failing_person_hold_no_jobs(
        self, model_server: OpenAIServer, bad: Job
    ) -> None:
        for name in ("cy", "dora"):
            model_server.queue(behave.error(500))
            assert not ran(asked(name)).is_held
            self.again(bad)
            assert not Circuit.objects.open().exists()
            assert ran(asked(f"{name} and a friend")).status == "completed"

    @pytest.mark.slow
    def test_row_50_a_successful_call_for_the_isolated_person_ends_the_isolation(
        self, model_server: OpenAIServer, bad: Job
    ) -> None:
        assert circuit().isolated == [bad.subject]
        assert ran(asked("ada", session_id="s2")).status == "completed"
        assert circuit().isolated == []

    @pytest.mark.slow
    def test_row_50_an_outage_also_holds_the_jobs_of_an_isolated_person(
        self, model_server: OpenAIServer, bad: Job
    ) -> None:
        model_server.always(behave.error(503))
        for name in ("cy", "dora"):
            ran(asked(name))
        assert circuit().is_open
        for name in ("ada", "bo"):
            assert ran(asked(name, session_id="s2")).is_held

    @pytest.mark.slow
    def test_row_50_an_outage_isolates_no_one(self, model_server: OpenAIServer) -> None:
        opened(model_server, "cy")
        ran(send_probe())
        model_server.always(behave.answer_well)
        assert ran(send_probe()).status == "completed"
        assert not circuit().is_open and circuit().isolated == []
        model_server.always(behave.error(500))
        for job in builds().due()[:2]:
            ran(job)
        assert circuit().is_open, "failures of the same people open the circuit again"

    @pytest.mark.slow
    def test_row_50_an_outage_with_calls_for_one_person_isolates_no_one(
        self, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.EMBEDDING = EmbeddingSettings(base_url=f"{model_server.base_url}/", model="embedder", dimensions=64)
        ada, bo = opened(model_server)
        record = CallRecord("embedding", "openai:embedder", 1, error_kind="server_error", error="No.")
        Circuit.objects.record(record, "embedding", job=ada)
        assert Circuit.objects.get(work="embedding").is_unreachable
        answer = CallRecord("embedding", "openai:embedder", 1)
        Circuit.objects.record(answer, "embedding", job=bo)
        assert Circuit.objects.get(work="embedding").isolated == []

    @pytest.mark.slow
    def test_row_50_jobs_of_an_isolated_person_are_not_probes_while_others_wait(
        self, model_server: OpenAIServer, bad: Job
    ) -> None:
        model_server.always(behave.error(503))
        others = [ran(asked(name)) for name in ("cy", "dora")]
        ran(asked("ada", session_id="s2"))
        probes = [ran(send_probe()) for _ in range(4)]
        assert {job.subject for job in probes} == {job.subject for job in others}
        assert all(job.pk != after.pk for job, after in pairwise(probes))

    @pytest.mark.slow
    def test_row_50_new_jobs_of_a_failing_person_do_not_take_probes_from_others(
        self, model_server: OpenAIServer
    ) -> None:
        opened(model_server)
        Circuit.objects.update(next_probe_at=timezone.now())
        assert ran(asked("ada", session_id="s2")).is_held
        Job.objects.filter(session__session_id="s2").delete()
        assert circuit().is_probe_due, "the probe is for a job that was already waiting"

    @pytest.mark.slow
    def test_row_50_the_first_probe_after_failures_of_two_people_is_sent_within_seconds(
        self, model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.models.circuit.FIRST_PROBE_SECONDS", 3)
        opened(model_server)
        assert circuit().next_probe_at - circuit().since <= timedelta(seconds=3)


class TestQueries:
    """Requests don't call a failing engine either, and delay no job."""

    @pytest.fixture
    def _vectors(self, embeddings_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 30)
        EmbeddingModel.objects.in_use()
        cache.clear()

    @pytest.mark.usefixtures("_vectors")
    def test_failing_queries_hold_no_jobs_and_only_some_are_sent_as_probes(
        self, transactional_db: None, embeddings_server: OpenAIServer
    ) -> None:
        embeddings_server.always(behave.error(500))
        for number in range(4):
            assert with_vector(RecallRequest(f"jack {number}")).degraded
        assert len(embeddings_server.requests) == 2
        [found] = Circuit.objects.open()
        assert found.is_of_queries
        embeddings_server.always(behave.answer_well)
        found.try_now("operator:eve")
        assert not with_vector(RecallRequest("jack 5")).degraded
        assert not with_vector(RecallRequest("jack 6")).degraded

    @pytest.mark.usefixtures("_vectors")
    def test_a_circuit_opened_by_jobs_blocks_queries_until_its_probe_is_due(
        self, transactional_db: None, embeddings_server: OpenAIServer
    ) -> None:
        record = CallRecord("embedding", "openai:test-embedder", 1, error_kind="credential", error="No.")
        Circuit.objects.record(record, "embedding")
        assert with_vector(RecallRequest("jack")).degraded
        assert not embeddings_server.requests

    @pytest.mark.usefixtures("_vectors")
    def test_a_rate_limit_hit_by_jobs_does_not_block_queries(
        self, ada: UserProfile, bo: UserProfile, embeddings_server: OpenAIServer
    ) -> None:
        embeddings_server.always(behave.error(429))
        for user in (ada, bo):
            ran(Job.objects.request("embed", talk(user, 2), requested_by="test"))
        assert Circuit.objects.get().is_open
        embeddings_server.always(behave.answer_well)
        assert not with_vector(RecallRequest("jack")).degraded


@pytest.mark.slow
def test_row_30_an_outage_causes_few_calls_and_all_jobs_complete_soon_after_it(
    model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 0.3)
    model_server.always(behave.error(503))
    jobs = [asked(f"person {number}") for number in range(8)]
    names = [name for lane in Lane for name in names_in(lane)]
    began = time.monotonic()
    while time.monotonic() < began + 1.5 or not Event.objects.filter(type="circuit_opened").exists():
        work_a_moment(names)
    assert len(model_server.requests) <= 2 + (time.monotonic() - began) / 0.3
    model_server.always(behave.answer_well)

    def all_are_done() -> bool:
        work_a_moment(names)
        return not Job.objects.open().filter(pk__in=[job.pk for job in jobs]).exists()

    wait_until(all_are_done)
    assert len(Event.objects.filter(type="circuit_opened")) == 1
    assert set(Job.objects.filter(process="build_moments").values_list("status", flat=True)) == {"completed"}


def work_a_moment(names: list[str]) -> None:
    """Do one iteration of a worker."""
    Circuit.objects.send_probes()
    if job := Job.objects.claim_next(names, after=Job.FIRST_SUBJECT):
        run_claimed(job)
    else:
        time.sleep(0.02)


class TestTheCommand:
    """`manage.py build_moments` reports why a job is not run."""

    def said(self) -> str:
        return printed("build_moments", user="ada", session="s1", force=True)

    def test_a_held_job_is_reported_with_its_engine(self, model_server: OpenAIServer) -> None:
        opened(model_server)
        assert f"is waiting for its engine. {circuit().why}" in self.said()

    def test_a_job_in_backoff_is_reported_with_time_and_error(
        self, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 60})
        model_server.always(behave.error(400))
        job = ran(asked("ada"))
        said = self.said()
        assert f"is waiting until {job.run_after:%Y-%m-%d %H:%M:%S} UTC" in said and "answered with status 400" in said

    def test_a_running_job_is_reported_as_running(self, ada: UserProfile) -> None:
        assert Job.objects.claim(asked("ada").job_id)
        assert "is already running job" in self.said()
