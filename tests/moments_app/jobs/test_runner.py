"""Every job ends with an outcome, and a failed engine changes nothing except the job."""

from datetime import time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import run_job
from moments_app.jobs.worker import RecoveryResult, recover_jobs
from moments_app.models import EngineCall, Job
from moments_app.models.job import CannotChange
from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.append import append
from tests.moments_app.engines.test_model import BAD_ANSWERS
from tests.support import openai_server as behave
from tests.support.jobs import (
    assert_chain_is_whole,
    assert_each_compacted_turn_is_in_exactly_one_moment,
    build,
    queued_job_ids,
    ran,
    snapshot,
    work_off,
)
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk, turns

pytestmark = pytest.mark.django_db(transaction=True)


def asked(session: Session, **fields: Any) -> Job:
    return Job.objects.request("build_moments", session, requested_by="test", force=True, **fields)


def test_a_job_without_a_model_keeps_its_connection(transactional_db: None) -> None:
    task = Job.objects.request_task("prune", "moments_app.reports.housekeeping.prune_receipts", requested_by="test")
    before = connection.connection
    assert ran(task).status == "completed"
    assert connection.connection is before


# One answer of each kind. The other answers are tested with the engine. Stalling answers would cost seconds here.
ONE_OF_EACH_KIND = {kind: behaviour for behaviour, kind in BAD_ANSWERS if kind != "timeout"}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "behaviour"), ONE_OF_EACH_KIND.items())
def test_row_3_a_failed_engine_call_changes_only_the_job(
    ada: UserProfile, model_server: OpenAIServer, kind: str, behaviour: behave.Behaviour
) -> None:
    session = talk(ada, 50)
    before = snapshot(session)
    model_server.always(behaviour)
    job = ran(asked(session))
    assert snapshot(session) == before
    assert job.status == "queued"
    assert job.error
    assert {call.error_kind for call in EngineCall.objects.all()} == {kind}

    model_server.always(behave.answer_well)
    Job.objects.update(run_after=timezone.now())
    assert ran(job).status == "completed"
    assert_each_compacted_turn_is_in_exactly_one_moment(session)


@pytest.mark.slow
def test_row_3_a_failure_in_the_second_of_three_calls_discards_the_first(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"max_input_tokens": 500})
    session = talk(ada, 90)
    before = snapshot(session)
    model_server.queue(behave.answer_well, behave.error(500))
    assert ran(asked(session, params={"lag": 0})).status == "queued"
    assert snapshot(session) == before
    work_off()
    assert_each_compacted_turn_is_in_exactly_one_moment(session)


@pytest.mark.slow
def test_row_4_with_an_engine_that_fails_at_random_every_turn_ends_in_exactly_one_moment(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"message_threshold": 40, "lag_messages": 5})
    settings.JOBS = settings.JOBS.model_copy(update={"max_attempts": 100})
    model_server.always(behave.fails_at_random(0.4))
    for number in range(200):  # in order, a few at a time
        append(ada, f"s{number % 4}", turns(5, first=number // 4 * 5))
    work_off(rounds=300)
    assert set(Job.objects.values_list("status", flat=True)) == {"completed"}
    assert EngineCall.objects.filter(ok=False).exists()
    for session in Session.objects.all():
        assert build(session, lag=0).status in ("completed", "queued")
    work_off(rounds=300)
    for session in Session.objects.all():
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert session.last_moment_message_idx == 249
    assert not Message.objects.turns().filter(moment=None).exists()
    assert_chain_is_whole(ada)


@pytest.mark.slow
def test_a_job_fails_after_its_last_attempt_and_can_be_retried(ada: UserProfile, model_server: OpenAIServer) -> None:
    model_server.always(behave.error(500))
    job = asked(talk(ada, 50))
    states = [ran(job).status for _ in range(3)]
    assert states == ["queued", "queued", "failed"]
    assert run_job(job.job_id) is None
    model_server.always(behave.answer_well)
    job.refresh_from_db()
    job.restart()
    assert ran(job).status == "completed"
    with pytest.raises(CannotChange, match="completed"):
        Job.objects.get(pk=job.pk).restart()


def test_a_failed_job_is_not_retried_while_another_is_open(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 50)
    job = asked(session)
    Job.objects.update(status="failed")
    asked(session)
    job.refresh_from_db()
    with pytest.raises(CannotChange, match="already does the same work"):
        job.restart()


@pytest.mark.slow
def test_the_delay_doubles_after_each_failure(ada: UserProfile, model_server: OpenAIServer, settings: Settings) -> None:
    settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 10, "max_attempts": 9})
    model_server.always(behave.error(500))
    job = asked(talk(ada, 50))
    for wait in (10, 20, 40, 80):
        started = timezone.now()
        assert run_job(job.job_id) is not None
        assert run_job(job.job_id) is None
        job.refresh_from_db()
        assert timedelta(0) <= job.run_after - started - timedelta(seconds=wait) < timedelta(seconds=5)
        Job.objects.update(run_after=timezone.now())


def test_row_21_a_429_is_a_failure_and_its_retry_after_is_respected(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    model_server.always(behave.error(429, {"Retry-After": "120"}))
    session = talk(ada, 50)
    job = ran(asked(session))
    assert job.status == "queued"
    assert job.run_after - timezone.now() > timedelta(seconds=110)
    session.refresh_from_db()
    assert session.last_moment_message_idx is None


class TestRecovery:
    """Abandoned jobs are recovered."""

    def test_row_5_a_job_without_a_heartbeat_is_taken_from_its_worker(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 50)
        job = asked(session)
        dead = Job.objects.claim(job.job_id)
        assert dead is not None
        assert recover_jobs().requeued == 0
        Job.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=5))
        assert recover_jobs().requeued == 1
        assert ran(job).status == "completed"
        # The worker was still alive: its claim is lost, and its results no longer count.
        dead.fail("too late")
        job.refresh_from_db()
        assert (job.status, job.attempts) == ("completed", 2)

    def test_row_25_a_job_that_a_worker_lost_with_its_connection_is_requeued(self, ada: UserProfile) -> None:
        job = asked(talk(ada, 50))
        assert Job.objects.claim_next([job.process], after=Job.FIRST_SUBJECT, worker="this one")
        assert recover_jobs(idle="another").requeued == 0
        assert recover_jobs(idle="this one").requeued == 1
        assert ran(job).status == "completed"

    def test_row_25_a_job_whose_worker_died_twice_waits_as_long_as_a_stale_job(
        self, ada: UserProfile, settings: Settings
    ) -> None:
        job = asked(talk(ada, 50))
        for attempt in (1, 2):
            assert Job.objects.claim_next([job.process], after=Job.FIRST_SUBJECT, worker="this one")
            began = timezone.now()
            assert recover_jobs(idle="this one").requeued == 1
            job.refresh_from_db()
            assert job.attempts == attempt and job.is_due == (attempt == 1)
        waits = job.run_after - began
        assert waits.total_seconds() == pytest.approx(settings.JOBS.stale_seconds, abs=5)

    def test_a_job_that_kills_its_worker_repeatedly_is_given_up(self, ada: UserProfile, settings: Settings) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"max_attempts": 2})
        job = asked(talk(ada, 50))
        for _ in range(2):
            assert Job.objects.claim(job.job_id)
            Job.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=5))
            recover_jobs()
        job.refresh_from_db()
        assert job.status == "failed"
        assert "crashed" in job.error

    def test_a_job_scheduled_for_later_is_not_recovered(self, ada: UserProfile) -> None:
        asked(talk(ada, 50))
        Job.objects.update(run_after=timezone.now() + timedelta(minutes=1))
        assert recover_jobs() == RecoveryResult(requeued=0, failed=0, restarted=0)
        assert queued_job_ids() == []

    def test_row_5_work_that_waits_too_long_degrades_readiness(self, ada: UserProfile, client: Any) -> None:
        asked(talk(ada, 50))
        assert client.get("/readyz").status_code == 200
        Job.objects.update(run_after=timezone.now() - timedelta(minutes=10))
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert "waited for 600 s" in answer.json()["checks"]["queue"]
        Job.objects.update(status="processing", heartbeat_at=timezone.now() - timedelta(minutes=10))
        assert client.get("/readyz").json()["status"] == "degraded"

    def test_row_5_an_unreadable_queue_degrades_a_serving_site(self, client: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE moments_app_job RENAME TO elsewhere")
        try:
            answer = client.get("/readyz")
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE elsewhere RENAME TO moments_app_job")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert answer.json()["checks"]["queue"] == "No answer: ProgrammingError"


def test_the_database_rejects_two_open_jobs_for_one_session(ada: UserProfile) -> None:
    session = talk(ada, 5)
    asked(session)
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.create(process="build_moments", user=ada, session=session, requested_by="test")


def test_row_20_jobs_and_calls_contain_no_secret(ada: UserProfile, model_server: OpenAIServer) -> None:
    model_server.always(behave.error(401, detail="the key sk-marked-key is wrong"))
    ran(asked(talk(ada, 50)))
    everything = f"{list(Job.objects.values())} {list(EngineCall.objects.values())}"
    assert "401" in everything
    assert "sk-marked-key" not in everything


class TestTheBudgetOfADay:
    """Daily caps on calls and costs."""

    def test_the_cost_of_a_call_depends_on_its_model(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.ENGINE = settings.ENGINE.model_copy(update={"prices": {"gpt-4.1-mini": (0.4, 1.6)}})
        ran(asked(talk(ada, 50)))
        assert EngineCall.objects.get().cost_usd == Decimal("0.000072")  # 100 input tokens, 20 output tokens

    def test_the_cost_is_unknown_without_a_price(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        ran(asked(talk(ada, 50)))
        assert EngineCall.objects.get().cost_usd is None

    @pytest.mark.slow
    @pytest.mark.parametrize("cap", [{"max_calls_per_day": 1}, {"max_usd_per_day": 0.00007}])
    def test_jobs_wait_until_tomorrow_when_the_budget_is_spent(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings, cap: dict[str, float]
    ) -> None:
        settings.ENGINE = settings.ENGINE.model_copy(update={"prices": {"gpt-4.1-mini": (0.4, 1.6)}, **cap})
        assert ran(asked(talk(ada, 50))).status == "completed"
        waiting = ran(asked(talk(ada, 50, session_id="s2")))
        assert (waiting.status, waiting.attempts) == ("queued", 0)
        assert "Waiting for the next day" in waiting.error
        assert waiting.run_after.time() == time(0)
        assert waiting.run_after > timezone.now()
        EngineCall.objects.update(created_at=timezone.now() - timedelta(days=1))
        Job.objects.update(run_after=timezone.now())
        assert ran(waiting).status == "completed"
