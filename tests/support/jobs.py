"""Runs jobs in the test's process, and checks the results."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from moments_app.jobs.runner import run_job
from moments_app.jobs.worker import recover_jobs
from moments_app.models import Job, Moment
from moments_app.moments.build import BuildMoments
from moments_app.recall.index_words import CountWords
from sessions_app.models import Message, Session, UserProfile
from tests.support.concurrency import on_its_own_connection
from tests.support.openai_server import OpenAIServer


def queued_job_ids() -> list[str]:
    """Return the due jobs, oldest first."""
    return [str(job.job_id) for job in Job.objects.due().order_by("id")]


def ran(job: Job) -> Job:
    done = run_job(job.job_id)
    assert done is not None
    return done


def run(process: str, session: Session) -> None:
    """Run a forced job of this process immediately."""
    assert ran(Job.objects.request(process, session, requested_by="test", force=True)).status == "completed"


def run_queued() -> bool:
    """Run the jobs that are due now. Return whether there were any."""
    queued = queued_job_ids()
    for job_id in queued:
        run_job(job_id)
    return bool(queued)


def work_off(rounds: int = 60) -> None:
    """Run due jobs, and those that `recover_jobs` queues again, until no job is open."""
    for _ in range(rounds):
        run_queued()
        recover_jobs()
        if not Job.objects.open().exists():
            return
    raise AssertionError(f"open after {rounds} rounds: {list(Job.objects.open().values('status', 'error'))}")


@contextmanager
def running(server: OpenAIServer, *jobs: Job) -> Iterator[None]:
    """Run jobs in threads. In the block, they wait for the answers of their engines. After it, they have ended."""
    server.hold()
    with ThreadPoolExecutor(len(jobs)) as pool:
        runs = [pool.submit(on_its_own_connection, run_job, job.job_id) for job in jobs]
        try:
            server.wait_for_held(len(jobs))
            yield
        finally:
            server.release()
    for run in runs:
        run.result()


def build(session: Session, **asked: Any) -> Job:
    """Run a forced build immediately."""
    params = {"lag": asked["lag"]} if "lag" in asked else {}
    return ran(Job.objects.request(BuildMoments.name, session, requested_by="test", force=True, params=params))


def count(user: UserProfile) -> Job:
    """Count the words of a person immediately."""
    return ran(Job.objects.request(CountWords.name, user_id=user.pk, requested_by="test", force=True))


def assert_each_compacted_turn_is_in_exactly_one_moment(session: Session) -> None:
    """Check that the moments' ranges have no gap or overlap up to the boundary, and that turns refer to their moment.

    Retracted turns refer to none.
    """
    session.refresh_from_db()
    moments = list(Moment.objects.filter(source_session=session).order_by("first_sequence"))
    covered = [n for moment in moments for n in range(moment.first_sequence, moment.last_sequence + 1)]
    assert covered == list(range(session.built_to + 1))
    for moment in moments:
        held = list(moment.messages.in_order().values_list("sequence", flat=True))
        believed = session.messages.turns().unretracted().in_order()
        covered_by_it = believed.filter(sequence__range=(moment.first_sequence, moment.last_sequence))
        assert held == list(covered_by_it.values_list("sequence", flat=True))
    assert not session.messages.turns().unretracted().filter(moment=None, sequence__lte=session.built_to).exists()


def assert_chain_is_whole(user: UserProfile) -> None:
    """Check that each moment refers to up to three earlier ones, nearest first, and that all are reachable."""
    moments = list(Moment.objects.for_user(user).order_by("ends_at", "first_sequence", "id"))
    keys = [moment.key for moment in moments]
    for number, moment in enumerate(moments):
        assert moment.previous_moment_keys == keys[max(0, number - 3) : number][::-1]
    if moments:
        assert [m.key for m in Moment.objects.chain_from(moments[-1], len(keys))] == keys[:-1][::-1]


def snapshot(session: Session) -> dict[str, Any]:
    """Return everything about a session and its person that a build may change, as plain values."""
    return {
        "session": Session.objects.filter(pk=session.pk).values().get(),
        "messages": list(Message.objects.filter(session=session).order_by("id").values()),
        "user": UserProfile.objects.filter(pk=session.user_id).values().get(),
        "moments": list(Moment.objects.filter(user_id=session.user_id).order_by("id").values()),
    }
