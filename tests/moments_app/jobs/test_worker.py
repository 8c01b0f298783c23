"""A real worker process, killed at random points."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import psutil
import pytest
from django.db import connection
from django.utils import timezone
from django_q.models import Schedule
from django_q.scheduler import scheduler
from django_q.tasks import async_task
from pytest_django.fixtures import Settings

from memoryproject.conf import LANES
from memoryproject.process_tree import WAKE, Fork, Tree
from memoryproject.schedules import register_schedules
from memoryproject.status.checks import judge
from moments_app.jobs import worker as jobs_worker
from moments_app.jobs.process import Lane, Progress, names_in, processes
from moments_app.jobs.runner import JobTimeout
from moments_app.jobs.scheduled import RunTask
from moments_app.jobs.worker import Worker, exits_when_idle, lanes_of
from moments_app.models import EngineCall, Job, Moment, Summary
from moments_app.models.job import NEXT_SQL, TASK
from sessions_app.models import Message, Session, UserProfile
from tests.support.concurrency import at_once
from tests.support.jobs import assert_chain_is_whole, assert_each_compacted_turn_is_in_exactly_one_moment, work_off
from tests.support.killed import EVERY_KILL
from tests.support.openai_server import OpenAIServer, answer_well, stall
from tests.support.processes import worker
from tests.support.transcript import talk
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

KILLS = 15 if EVERY_KILL else 8


def wait_until_no_job_is_open() -> None:
    """Wait until the workers have finished all jobs."""
    wait_until(lambda: not Job.objects.open().exists())


@pytest.mark.slow(seconds=15)
@pytest.mark.usefixtures("rolling")
def test_row_5_a_worker_killed_at_random_points_loses_and_duplicates_nothing(ada: UserProfile, bo: UserProfile) -> None:
    chance = random.Random(7)
    with OpenAIServer() as server:
        server.always(stall(0.05, answer_well))
        variables = {
            "ENGINE__BASE_URL": server.base_url,
            "MOMENT_BUILDER__MESSAGE_THRESHOLD": "20",
            "MOMENT_BUILDER__LAG_MESSAGES": "3",
            "SESSION_COMPACTION__ENABLED": "false",
            "JOBS__STALE_SECONDS": "1",
            "JOBS__BACKOFF_SECONDS": "0",
            "JOBS__MAX_ATTEMPTS": "99",
        }
        with pytest.MonkeyPatch.context() as patch, worker(**variables) as cluster:
            apply_here(patch)
            for kill in range(KILLS):
                talk(ada, 20, session_id=f"s{kill % 5}")
                talk(bo, 20, session_id=f"s{kill % 3}")
                wait_until(Job.objects.working().exists)  # otherwise a starting worker has no job yet
                time.sleep(chance.uniform(0, 0.4))
                if kill % 5 == 4:
                    cluster.restart()
                else:
                    cluster.kill_member(chance.randrange(100))
            wait_until_no_job_is_open()
            sessions = list(Session.objects.select_related("user"))
            for session in sessions:  # a last append makes summaries due by the worker's thresholds
                talk(session.user, 2, session_id=session.session_id)
            wait_until_no_job_is_open()
    assert set(Job.objects.values_list("status", flat=True)) <= {"completed", "skipped"}
    assert Message.objects.turns().count() == KILLS * 40 + 2 * len(sessions)
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
    assert Moment.objects.count() >= KILLS
    called = Job.objects.filter(status="completed").exclude(process__in=["count_words", TASK])
    assert EngineCall.objects.filter(ok=True).count() >= called.count()


def apply_here(patch: pytest.MonkeyPatch) -> None:
    """Use the worker's thresholds for the appends and the sweep of this process."""
    from django.conf import settings

    builder = settings.MOMENT_BUILDER.model_copy(update={"message_threshold": 20, "lag_messages": 3})
    patch.setattr(settings, "MOMENT_BUILDER", builder)
    jobs = settings.JOBS.model_copy(update={"stale_seconds": 1, "backoff_seconds": 0, "max_attempts": 99})
    patch.setattr(settings, "JOBS", jobs)


@pytest.mark.slow(seconds=40)
def test_row_25_killed_idle_workers_do_not_stop_work(ada: UserProfile) -> None:
    chance = random.Random(11)
    with OpenAIServer() as server, worker(ENGINE__BASE_URL=server.base_url) as cluster:
        talk(ada, 250, session_id="first")
        wait_until_no_job_is_open()
        for _ in range(40 if EVERY_KILL else 20):
            members = cluster.members()
            if members:
                with suppress(psutil.NoSuchProcess):  # it may have ended already
                    chance.choice(members).kill()
            time.sleep(chance.uniform(0, 0.3))
        talk(ada, 250, session_id="second")
        wait_until_no_job_is_open()
    assert set(Job.objects.filter(process="build_moments").values_list("status", flat=True)) == {"completed"}
    for session in Session.objects.all():
        assert_each_compacted_turn_is_in_exactly_one_moment(session)


@pytest.mark.slow
def test_row_32_six_sessions_of_one_person_take_one_call_per_build(ada: UserProfile) -> None:
    with OpenAIServer() as server:
        server.always(stall(0.3, answer_well))
        for number in range(6):
            talk(ada, 250, session_id=f"s{number}")
        with worker(ENGINE__BASE_URL=server.base_url, SESSION_COMPACTION__ENABLED="false"):
            wait_until_no_job_is_open()
    builds = Job.objects.filter(process="build_moments")
    assert set(builds.values_list("status", "attempts")) == {("completed", 1)}
    calls = EngineCall.objects.filter(purpose="moment-builder", is_part=False)
    assert calls.count() == sum(job.result["engine_calls"] for job in builds)
    assert_chain_is_whole(ada)


@pytest.mark.slow
def test_row_25_a_job_of_a_killed_worker_is_taken_over_long_before_it_is_stale(
    ada: UserProfile, bo: UserProfile
) -> None:
    with OpenAIServer() as server, worker(ENGINE__BASE_URL=server.base_url, JOBS__STALE_SECONDS="3600") as cluster:
        for person, kill in ((ada, _kill_who_works), (bo, cluster.restart)):
            server.hold()
            talk(person, 250)
            wait_until(Job.objects.filter(process="build_moments", status="processing", user=person).exists)
            kill()
            server.release()
            wait_until_no_job_is_open()
            assert Job.objects.filter(process="build_moments", user=person).earliest("pk").attempts == 2


def _kill_who_works() -> None:
    for name in Job.objects.workers():
        psutil.Process(int(name.split()[-2])).kill()


@pytest.mark.slow
@pytest.mark.usefixtures("rolling")
def test_row_30_a_summary_does_not_wait_for_embeddings_at_a_hanging_endpoint(
    embeddings_server: OpenAIServer, ada: UserProfile, bo: UserProfile
) -> None:
    endpoint = {"EMBEDDING__PROVIDER": "openai", "EMBEDDING__BASE_URL": embeddings_server.base_url}
    endpoint["EMBEDDING__DIMENSIONS"] = "64"
    endpoint["ENGINE__TIMEOUT_SECONDS"] = str(2 * TIMEOUT)
    embedding = Job.objects.filter(process="embed", status="processing")
    embeddings_server.hold()
    with worker(**endpoint):
        talk(ada, 8), talk(bo, 8)
        wait_until(lambda: embedding.count() == 2)
        session = talk(UserProfile.objects.ensure("carl"), 8)
        wait_until(lambda: Summary.objects.latest_completed(session) is not None)
        assert embedding.exists()
    embeddings_server.release()


class TestTurns:
    """The order in which a worker claims jobs."""

    def taken(self, *, after: int = Job.FIRST_SUBJECT) -> Job | None:
        return Job.objects.claim_next(["build_moments"], after=after)

    @pytest.mark.slow
    def test_row_32_jobs_of_one_person_are_claimed_one_at_a_time(self, ada: UserProfile) -> None:
        talk(ada, 250, session_id="s1"), talk(ada, 250, session_id="s2")
        first = self.taken()
        assert first is not None
        assert self.taken() is None
        first.complete({})
        second = self.taken()
        assert second is not None
        assert (second.session_id, second.attempts) != (first.session_id, 2)

    def test_a_dead_worker_does_not_block_its_person(self, ada: UserProfile) -> None:
        talk(ada, 250, session_id="s1"), talk(ada, 250, session_id="s2")
        assert self.taken()
        Job.objects.filter(status="processing").update(heartbeat_at=timezone.now() - timedelta(minutes=5))
        assert self.taken()

    @pytest.mark.slow
    def test_people_take_turns_however_many_jobs_one_has(self, ada: UserProfile, bo: UserProfile) -> None:
        for number in range(4):
            talk(ada, 250, session_id=f"s{number}")
        talk(bo, 250)
        order: list[str] = []
        after = Job.FIRST_SUBJECT
        while job := self.taken(after=after):
            assert job.user
            order.append(job.user.user_id)
            after = job.subject
            job.complete({})
        assert order == ["ada", "bo", "ada", "ada", "ada"]

    def test_row_32_urgent_jobs_of_a_person_are_claimed_before_their_others(
        self, ada: UserProfile, bo: UserProfile
    ) -> None:
        for number in range(3):
            Job.objects.request("roll_summary", talk(ada, 2, session_id=f"s{number}"), requested_by="test")
        Job.objects.request("embed", user_id=ada.pk, requested_by="test")
        Job.objects.request("embed", user_id=bo.pk, requested_by="test")
        taken: list[tuple[UserProfile | None, str]] = []
        after = Job.FIRST_SUBJECT
        while job := Job.objects.claim_next(["embed"], urgent=["digest_session", "roll_summary"], after=after):
            taken.append((job.user, job.process))
            after = job.subject
            job.complete({})
        assert taken == [(ada, "roll_summary"), (bo, "embed"), *[(ada, "roll_summary")] * 2, (ada, "embed")]

    @pytest.mark.slow
    def test_row_32_workers_never_claim_jobs_of_one_person_concurrently(self, ada: UserProfile) -> None:
        for number in range(8):
            talk(ada, 250, session_id=f"s{number}")
        taken = [job for job in at_once(lambda _: self.taken(), 8) if job]
        assert len(taken) == 1

    @pytest.mark.slow
    def test_the_next_job_is_found_by_index_among_many(self, transactional_db: None) -> None:
        people = UserProfile.objects.bulk_create(UserProfile(user_id=f"p{number}") for number in range(3_000))
        Job.objects.bulk_create(Job(process="embed", user=person, requested_by="test") for person in people)
        values: dict[str, Any] = {"processes": ["embed"], "urgent": ["roll_summary"], "after": 0, "stale": 60}
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE moments_app_job")
            cursor.execute(f"EXPLAIN {NEXT_SQL}", values)
            plan = "\n".join(line for (line,) in cursor.fetchall())
        assert "job_in_turn" in plan
        assert "Sort Key: job.run_after" not in plan


def serve_while(happens: Callable[[], object]) -> None:
    """Serve scheduled tasks in this process until a function, called in another thread, returns."""

    def end_this_worker_afterwards() -> None:
        try:
            happens()
        finally:
            connection.close()
            os.kill(os.getpid(), signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    ending = threading.Thread(target=end_this_worker_afterwards)
    ending.start()
    try:
        Worker([Lane.SCHEDULED]).serve()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ending.join()


@pytest.mark.slow
def test_an_endless_task_is_aborted(transactional_db: None, settings: Settings) -> None:
    settings.JOB_SECONDS = 1
    async_task("time.sleep", 600)
    serve_while(lambda: wait_until(Job.objects.filter(process=TASK, held_by="backoff").exists))
    job = Job.objects.get(process=TASK)
    assert (job.status, job.attempts, job.held_by) == ("queued", 1, "backoff")
    assert job.error.startswith("JobTimeout in ")
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)  # no timer is left that would end a later job


@pytest.mark.slow
def test_an_idle_worker_finds_a_task_after_a_lost_notification(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queue_a_task_silently() -> None:
        time.sleep(1)  # until the worker is idle
        async_task("time.sleep", 0)  # tests send no notifications
        wait_until(Job.objects.filter(process=TASK, status="completed").exists)

    monkeypatch.setattr(jobs_worker, "IDLE", 0.2)
    serve_while(queue_a_task_silently)
    assert Job.objects.get(process=TASK).status == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 5])
def test_row_47_a_schedule_runs_while_every_lane_has_work(ada: UserProfile, bo: UserProfile, workers: int) -> None:
    with OpenAIServer() as server:
        server.always(stall(0.3, answer_well))
        for number in range(12):
            talk(ada, 250, session_id=f"s{number}"), talk(bo, 250, session_id=f"s{number}")
        due_now("retain")
        builds = Job.objects.open().filter(process="build_moments")
        with worker(ENGINE__BASE_URL=server.base_url, JOBS__WORKERS=str(workers)):
            wait_until(Job.objects.filter(task="retain", status="completed").exists)
            assert builds.count() > 12


def due_now(name: str) -> None:
    register_schedules()
    Schedule.objects.exclude(name=name).update(repeats=0)
    Schedule.objects.filter(name=name).update(repeats=-1, next_run=timezone.now() - timedelta(seconds=1))


def test_row_47_a_schedule_is_never_queued_twice_and_leaves_one_row(transactional_db: None) -> None:
    for _ in range(3):
        for _ in range(2):
            due_now("prune_receipts")
            scheduler()
            assert Job.objects.filter(task="prune_receipts").open().count() == 1
        work_off()
    assert Job.objects.get(task="prune_receipts").status == "completed"


def test_row_47_a_schedule_that_has_not_run_for_three_intervals_degrades_the_site(transactional_db: None) -> None:
    due_now("prune_receipts")
    scheduler()
    assert judge().state == "up"
    waited = timezone.now() - timedelta(minutes=181)
    Job.objects.filter(task="prune_receipts").update(queued_at=waited)
    [reason] = judge().reasons
    assert reason.startswith("The schedule prune_receipts has not run for 3\xa0hours, 1\xa0minute.")
    work_off()
    assert judge().state == "up"


@pytest.mark.parametrize(("workers", "state"), [(4, "up"), (5, "degraded")])
def test_row_47_a_schedule_behind_a_running_job_is_late_only_with_a_dedicated_worker(
    transactional_db: None, settings: Settings, workers: int, state: str
) -> None:
    settings.JOBS = settings.JOBS.model_copy(update={"workers": workers})
    due_now("count_words")
    scheduler()
    now = timezone.now()
    running = {"status": "processing", "started_at": now - timedelta(minutes=9), "heartbeat_at": now}
    long = Job.objects.create(process="embed_all", requested_by="test", **running)
    waited = now - timedelta(minutes=8)
    Job.objects.filter(task="count_words").update(queued_at=waited, run_after=waited)
    assert judge().state == state
    long.complete({})
    assert judge().state == "degraded"  # no work is left to wait for


@pytest.mark.slow
def test_a_worker_that_can_rest_ends_if_it_is_idle(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_worker, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(jobs_worker, "IDLE", 0.1)
    Worker([Lane.BUILD], exits_when_idle=True).serve()


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The times at which this process was told to start resting workers."""
    monkeypatch.setattr(os, "getppid", os.getpid)  # this process is the root
    times: list[float] = []
    before = signal.signal(WAKE, lambda *_: times.append(time.monotonic())), signal.getsignal(signal.SIGALRM)
    yield times
    for number, handler in zip((WAKE, signal.SIGALRM), before, strict=True):
        signal.signal(number, handler)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exits_when_idle", "is_task", "wakes"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_the_last_worker_starts_others_during_a_long_job(
    woken: list[float], exits_when_idle: bool, is_task: bool, wakes: bool
) -> None:
    member = Worker([Lane.BUILD], exits_when_idle=exits_when_idle)
    signal.signal(signal.SIGALRM, member._alarm)
    with member._limited(is_task=is_task):
        time.sleep(2 * jobs_worker.BUSY_SECONDS)
    assert len(woken) == wakes


@pytest.mark.slow
def test_the_last_worker_keeps_others_awake_until_its_job_is_aborted(
    woken: list[float], monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(jobs_worker, "IDLE_SECONDS", 0.2)
    settings.JOB_SECONDS = 1
    last = Worker([Lane.BUILD])
    signal.signal(signal.SIGALRM, last._alarm)
    with pytest.raises(JobTimeout), last._limited():
        time.sleep(30)
    assert len(woken) > 3


def test_the_watchdog_starts_no_worker_for_jobs_that_cannot_be_taken(
    ada: UserProfile, bo: UserProfile, woken: list[float]
) -> None:
    now = timezone.now()
    asked: dict[str, Any] = {"requested_by": "test", "run_after": now - timedelta(minutes=1)}
    Job.objects.create(process="embed", user=ada, status="processing", heartbeat_at=now, **asked)
    Job.objects.create(process="build_moments", user=ada, **asked)
    Job.objects.create(process=TASK, task="some task", **asked)
    jobs_worker._wake_for_due_jobs()
    assert woken == []
    Job.objects.create(process="build_moments", user=bo, **asked)
    jobs_worker._wake_for_due_jobs()
    assert len(woken) == 1


def sleep_long() -> None:
    time.sleep(600)


def _two_workers() -> None:
    class Sleep(RunTask):
        name, lane = "sleep", Lane.BUILD

        def prepare(self, job: Job, progress: Progress) -> None:
            sleep_long()

    jobs_worker.IDLE_SECONDS = 0.5
    works = [
        Fork(f"Worker {n}", partial(jobs_worker.serve, n, 2), exits_when_idle=exits_when_idle(n, 2)) for n in range(2)
    ]
    tree = Tree(works, print)
    tree.start()
    tree.run_until_interrupted()


@pytest.fixture
def last_worker(transactional_db: None, settings: Settings) -> Iterator[None]:
    """Run two workers. The first one rests."""
    settings.JOBS = settings.JOBS.model_copy(update={"poll_seconds": 0.1})
    connection.ensure_connection()  # the connection kept between tests, which the forks would share
    connection.close()
    root = Fork("The root", _two_workers)
    root.start()
    try:
        wait_until(lambda: "Worker 0" in names_below(root))
        wait_until(lambda: names_below(root) == ["Worker 1"])
        yield
    finally:
        root.signal(signal.SIGKILL)
        root.wait(TIMEOUT)


def names_below(root: Fork) -> list[str]:
    children = psutil.Process(root.pid).children()
    return sorted(child.name() for child in children if child.status() != psutil.STATUS_ZOMBIE)


@pytest.mark.slow
@pytest.mark.usefixtures("last_worker")
@pytest.mark.parametrize("is_task", [False, True])
def test_a_job_does_not_wait_for_a_long_job_of_the_last_worker(
    ada: UserProfile, bo: UserProfile, is_task: bool
) -> None:
    if is_task:
        Job.objects.request_task("sleep", f"{__name__}.sleep_long", requested_by="test")
    else:
        Job.objects.create(process="sleep", user=ada, requested_by="test")
    wait_until(Job.objects.working().exists)
    time.sleep(2)  # several times `REST`
    Job.objects.create(process="sleep", user=bo, requested_by="test")
    wait_until(lambda: Job.objects.working().count() == 2)


def test_each_lane_has_a_worker_that_also_takes_more_urgent_jobs() -> None:
    assert [lanes_of(number, 5)[0] for number in range(5)] == list(Lane)
    assert lanes_of(0, 5) == [Lane.SCHEDULED]
    assert lanes_of(2, 5) == [Lane.BUILD, Lane.WAITED]
    assert lanes_of(1, 4) == [Lane.BUILD, Lane.WAITED]
    for workers in range(1, 9):
        lanes = [lanes_of(number, workers) for number in range(workers)]
        assert lanes[-1] == sorted(Lane, reverse=True)
        assert sum(Lane.BULK in one for one in lanes) == 1
    assert len(Lane) == LANES
    assert {name for lane in Lane for name in names_in(lane)} == {process.name for process in processes()}
