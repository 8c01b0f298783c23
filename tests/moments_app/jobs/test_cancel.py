"""Canceling a job takes effect at once, even if the job is running."""

import pytest

from moments_app.jobs.runner import cancel, run_job
from moments_app.jobs.worker import recover_jobs
from moments_app.models import FactEmbedding, Job, MemoryStream, Summary
from moments_app.models.embedding import owner_arguments
from moments_app.models.job import CannotChange
from sessions_app.models import Session, UserProfile
from tests.support.jobs import (
    assert_each_compacted_turn_is_in_exactly_one_moment,
    queued_job_ids,
    running,
    snapshot,
    work_off,
)
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

BY = "operator:root"


def asked(process: str, session: Session) -> Job:
    return Job.objects.request(process, session, requested_by="test", force=True)


def test_a_cancelled_queued_job_never_runs(ada: UserProfile) -> None:
    job = asked("build_moments", talk(ada, 50))
    cancel(job, actor=BY)
    assert run_job(job.job_id) is None
    job.refresh_from_db()
    assert (job.status, job.result["reason"]) == ("skipped", "Cancelled by operator root.")
    assert job.is_cancelled
    assert job.finished_at is not None
    assert recover_jobs().requeued == 0


def test_a_job_cancelled_during_the_engine_call_writes_nothing(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 50)
    before = snapshot(session)
    job = asked("build_moments", session)
    with running(model_server, job):
        cancel(job, actor=BY)
    assert snapshot(session) == before
    job.refresh_from_db()
    assert job.is_cancelled
    assert job.engine_calls.count() == 1


def test_a_cancelled_embedding_writes_no_vector(ada: UserProfile, embeddings_server: OpenAIServer) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    stream.atoms.create(user=ada, atom_type="fact", content="Ada lives in Turin.")
    job = Job.objects.request("embed", user_id=ada.pk, requested_by="test")
    with running(embeddings_server, job):
        cancel(job, actor=BY)
    assert not FactEmbedding.objects.filter(**owner_arguments(job)).exists()
    job.restart()
    work_off()
    assert FactEmbedding.objects.exists()


@pytest.mark.slow
def test_only_the_new_run_of_a_retried_cancelled_job_writes(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 50)
    job = asked("build_moments", session)
    with running(model_server, job):
        cancel(job, actor=BY)
        job.refresh_from_db()
        job.restart()
        assert Job.objects.claim(job.job_id) is not None
        before = snapshot(session)
    assert snapshot(session) == before  # the canceled run has no claim on the new attempt
    Job.objects.update(status="queued")
    work_off()
    job.refresh_from_db()
    assert job.status == "completed"
    assert_each_compacted_turn_is_in_exactly_one_moment(session)


def test_a_cancelled_job_can_be_retried(ada: UserProfile) -> None:
    session = talk(ada, 50)
    job = asked("build_moments", session)
    cancel(job, actor=BY)
    job.refresh_from_db()
    job.restart()
    assert str(job.job_id) in queued_job_ids()
    work_off()
    job.refresh_from_db()
    assert job.status == "completed"
    assert not job.is_cancelled
    assert_each_compacted_turn_is_in_exactly_one_moment(session)


@pytest.mark.parametrize("status", ["completed", "failed", "skipped"])
def test_an_ended_job_cannot_be_cancelled(ada: UserProfile, status: str) -> None:
    job = asked("build_moments", talk(ada, 50))
    Job.objects.update(status=status)
    with pytest.raises(CannotChange, match=status):
        cancel(job, actor=BY)
    assert Job.objects.get().status == status


def test_a_cancelled_summary_is_given_up_and_not_restarted(ada: UserProfile, rolling: None) -> None:
    session = talk(ada, 20)
    job = Job.objects.get(process="roll_summary")
    cancel(job, actor=BY)
    given_up = Summary.objects.get(session=session)
    assert (given_up.status, given_up.error) == ("failed", "Cancelled by operator root.")
    assert recover_jobs().restarted == 0
    talk(ada, 2)
    work_off()
    assert Summary.objects.completed().filter(session=session, end_sequence=21).exists()


def test_a_cancelled_settling_changes_nothing_in_the_session(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 50)  # quiet, because its messages are old
    settling = asked("settle", session)
    with running(model_server, settling):
        cancel(settling, actor=BY)
    settling.refresh_from_db()
    session.refresh_from_db()
    assert settling.status == "skipped"
    assert (session.status, session.last_moment_message_idx) == ("active", None)
