"""The real worker, killed at random points."""

import random
import time

import pytest

from moments_app.jobs.recovery import recover_jobs
from moments_app.models import EngineCall, Job, Moment, Summary
from sessions_app.models import Message, Session, UserProfile
from tests.support.jobs import assert_chain_is_whole, assert_each_compacted_turn_is_in_exactly_one_moment
from tests.support.openai_server import OpenAIServer, answer_well, stall
from tests.support.processes import worker
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

KILLS = 50


def wait_until_no_job_is_open(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while Job.objects.open().exists():
        assert time.monotonic() < deadline, list(Job.objects.open().values("status", "attempts", "error"))
        recover_jobs()  # what the schedule does once a minute
        time.sleep(0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("rolling")
def test_row_5_a_worker_killed_at_random_points_loses_and_doubles_nothing(ada: UserProfile, bo: UserProfile) -> None:
    chance = random.Random(7)
    with OpenAIServer() as server:
        server.always(stall(0.05, answer_well))
        variables = {
            "ENGINE__BASE_URL": server.base_url,
            "MOMENT_BUILDER__MESSAGE_THRESHOLD": "20",
            "MOMENT_BUILDER__LAG_MESSAGES": "3",
            "JOBS__HEARTBEAT_SECONDS": "0.2",
            "JOBS__STALE_SECONDS": "1",
            "JOBS__BACKOFF_SECONDS": "0",
            "JOBS__MAX_ATTEMPTS": "99",
        }
        with pytest.MonkeyPatch.context() as patch, worker(**variables) as cluster:
            apply_here(patch)
            for kill in range(KILLS):
                talk(ada, 20, session_id=f"s{kill % 5}")
                talk(bo, 20, session_id=f"s{kill % 3}")
                recover_jobs()
                time.sleep(chance.uniform(0, 0.8))
                if kill % 5 == 4:
                    cluster.restart()
                else:
                    cluster.kill_member(chance.randrange(100))
            wait_until_no_job_is_open(90)
    assert set(Job.objects.values_list("status", flat=True)) <= {"completed", "skipped"}
    assert Message.objects.turns().count() == KILLS * 40
    for session in Session.objects.all():
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert session.last_moment_message_idx is not None
        builds = session.jobs.filter(process="build_moments", status="completed")
        assert session.messages.partitions().count() == builds.count()
        summary = Summary.objects.latest_completed(session)
        assert summary and summary.end_sequence == session.last_sequence
    assert not Summary.objects.processing().exists()
    assert Summary.objects.completed().count() == Job.objects.filter(process="roll_summary", status="completed").count()
    assert_chain_is_whole(ada)
    assert_chain_is_whole(bo)
    assert Moment.objects.count() > KILLS
    assert EngineCall.objects.filter(ok=True).count() >= Job.objects.filter(status="completed").count()


def apply_here(patch: pytest.MonkeyPatch) -> None:
    """The thresholds of the worker, for the appends and the sweep of this process."""
    from django.conf import settings

    builder = settings.MOMENT_BUILDER.model_copy(update={"message_threshold": 20, "lag_messages": 3})
    patch.setattr(settings, "MOMENT_BUILDER", builder)
    jobs = settings.JOBS.model_copy(update={"stale_seconds": 1, "backoff_seconds": 0, "max_attempts": 99})
    patch.setattr(settings, "JOBS", jobs)


@pytest.mark.slow
def test_an_idle_worker_runs_what_an_append_made_due(ada: UserProfile) -> None:
    with OpenAIServer() as server, worker(ENGINE__BASE_URL=server.base_url):
        session = talk(ada, 250)
        deadline = time.monotonic() + 30
        while Job.objects.open().exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert Job.objects.get(process="build_moments").status == "completed"
    assert_each_compacted_turn_is_in_exactly_one_moment(session)
