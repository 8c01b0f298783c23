"""Idle workers wait on their connection. Changes that may make a job due wake them."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone
from django_q.models import Schedule
from pytest_django.fixtures import Settings

from memoryproject.process_tree import WAKE, signals_as_bytes
from moments_app.jobs import worker as jobs_worker
from moments_app.jobs.runner import retry_all
from moments_app.jobs.worker import watch_jobs
from moments_app.models import Job
from sessions_app.database import deferred
from sessions_app.database.deferred import Channel, NotificationListener, ThreadWaker, wake_workers
from sessions_app.models import UserProfile
from sessions_app.transcript.append import append
from tests.support.concurrency import at_once
from tests.support.transcript import turns
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

LONG = 600.0  # seconds, longer than any test


@pytest.fixture(autouse=True)
def _really_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send notifications as a command does. Other tests send none."""
    monkeypatch.setattr(deferred, "sends_from_thread", lambda: False)


@contextmanager
def listening(channel: Channel = Channel.JOBS) -> Iterator[threading.Event]:
    """Wait for a notification in a thread; yield an event that is set when it arrives."""
    woken, ready = threading.Event(), threading.Event()
    reading, writing = os.pipe()

    def wait() -> None:
        bell = NotificationListener(channel, interrupt=reading)
        bell.wait(LONG)  # returns at once, and listens from now on
        ready.set()
        bell.wait(LONG)
        woken.set()
        connection.close()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        assert ready.wait(30)
        yield woken
    finally:
        os.write(writing, b"!")
        thread.join()
        os.close(reading)
        os.close(writing)


def job(ada: UserProfile, **fields: object) -> Job:
    return Job.objects.create(process="embed", user=ada, requested_by="test", **fields)


def later(ada: UserProfile) -> Job:
    return job(ada, run_after=timezone.now() + timedelta(hours=1))


def ask(ada: UserProfile) -> None:
    Job.objects.request("embed", user_id=ada.pk, requested_by="test")


def take_up(ada: UserProfile) -> None:
    Job.objects.filter(user=ada).update(run_after=timezone.now())


def end(ada: UserProfile) -> None:
    Job.objects.filter(user=ada).update(status=Job.Status.COMPLETED)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "change"), [(None, ask), (later, take_up), (job, end)])
def test_changes_that_may_make_a_job_due_wake_workers(
    ada: UserProfile, before: Callable[[UserProfile], Job] | None, change: Callable[[UserProfile], None]
) -> None:
    if before:
        before(ada)
    with listening() as woken:
        change(ada)
        wait_until(woken.is_set)


@pytest.mark.slow
@pytest.mark.parametrize("channel", [Channel.JOBS, Channel.TASKS])
def test_the_watchdog_wakes_workers_whose_notification_was_lost(ada: UserProfile, channel: Channel) -> None:
    earlier = timezone.now() - timedelta(minutes=1)
    Job.objects.bulk_create([Job(process="embed", user=ada, requested_by="test", run_after=earlier)])
    ending = threading.Event()
    watchdog = threading.Thread(target=watch_jobs, args=[ending])
    with listening(channel) as woken:
        watchdog.start()
        wait_until(woken.is_set)
        ending.set()
        watchdog.join()


@pytest.mark.slow
def test_the_watchdog_wakes_resting_workers_if_an_announced_job_is_not_claimed(
    ada: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    Schedule.objects.update(repeats=0)  # they would queue tasks
    monkeypatch.setattr(jobs_worker, "IDLE", LONG)
    monkeypatch.setattr(jobs_worker, "RECOVERY_SECONDS", 0.1)
    monkeypatch.setattr(os, "getppid", os.getpid)  # this process takes the place of the root
    started, ending = threading.Event(), threading.Event()
    before = signal.signal(WAKE, lambda *_: started.set())
    watchdog = threading.Thread(target=watch_jobs, args=[ending])
    watchdog.start()
    try:
        time.sleep(2)  # it is waiting for a notification
        assert not started.is_set()
        ask(ada)
        wait_until(started.is_set)
    finally:
        ending.set()
        wake_workers()
        watchdog.join()
        signal.signal(WAKE, before)


@pytest.mark.slow
def test_workers_are_woken_after_the_commit_and_not_by_a_rollback(ada: UserProfile) -> None:
    with listening() as woken:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            ask(ada)
            1 / 0  # noqa: B018
        with transaction.atomic():
            ask(ada)
            assert not woken.wait(0.5)
        wait_until(woken.is_set)


@pytest.mark.slow
def test_changes_that_make_no_job_due_wake_no_worker(ada: UserProfile) -> None:
    job(ada)
    with listening() as woken:
        append(ada, "s1", turns(1))
        ask(ada)  # a job is already open
        taken = Job.objects.claim_next(["embed"], after=Job.FIRST_SUBJECT)
        assert taken
        taken.record_heartbeat(1, 2)
        assert not woken.wait(0.5)


@pytest.mark.slow
def test_a_new_task_wakes_only_task_workers_and_its_end_wakes_none(ada: UserProfile) -> None:
    with listening() as woken, listening(Channel.TASKS) as tasks_woken:
        task = Job.objects.request_task("prune", "some.function", requested_by="test")
        wait_until(tasks_woken.is_set)
        taken = Job.objects.claim_task()
        assert taken == task
        taken.complete({})
        assert not woken.wait(0.5)


def fail_and_restart(task: Job) -> None:
    task.fail("No luck.")
    task.restart()


def fail_and_retry_all(task: Job) -> None:
    task.retry_later("No luck.")
    retry_all(Job.objects.all(), actor="test")


@pytest.mark.slow
@pytest.mark.parametrize("change", [Job.release, fail_and_restart, fail_and_retry_all])
def test_a_requeued_task_wakes_task_workers(ada: UserProfile, change: Callable[[Job], None]) -> None:
    Job.objects.request_task("prune", "some.function", requested_by="test")
    taken = Job.objects.claim_task()
    assert taken
    with listening(Channel.TASKS) as tasks_woken:
        change(taken)
        wait_until(tasks_woken.is_set)


def test_an_idle_worker_knows_when_the_next_job_is_due(ada: UserProfile) -> None:
    assert Job.objects.next_due(within=30) == 30
    job(ada, run_after=timezone.now() + timedelta(seconds=20))
    assert 10 < Job.objects.next_due(within=30) <= 20
    assert Job.objects.next_due(within=5) == 5


def test_waking_from_threads_never_blocks() -> None:
    waker = ThreadWaker()
    bell = NotificationListener(Channel.JOBS, interrupt=waker.reading)
    bell.wait(LONG)
    for _ in range(100_000):  # more bytes than a pipe can buffer
        waker.wake()
    bell.wait(LONG)


def test_a_signal_ends_a_wait() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with signals_as_bytes() as signals:
            bell = NotificationListener(Channel.JOBS, interrupt=signals)
            bell.wait(LONG)
            os.kill(os.getpid(), signal.SIGUSR1)
            bell.wait(LONG)
            bell.wait(0)  # would return at once if the signal had not been read
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.slow
def test_a_web_process_sends_one_notification_for_several_requests(
    ada: UserProfile, bo: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred, "sends_from_thread", lambda: True)
    with listening() as woken:
        for person in (ada, bo):
            ask(person)
        assert not woken.is_set()
        assert deferred._buffer.pending()[-2:] == [Channel.JOBS, Channel.JOBS]
        deferred._buffer.flush()
        wait_until(woken.is_set)


def test_a_notification_during_a_query_is_not_lost(ada: UserProfile) -> None:
    with signals_as_bytes() as signals:
        bell = NotificationListener(Channel.JOBS, interrupt=signals)
        bell.wait(LONG)
        at_once(lambda _: ask(ada), 1)
        Job.objects.next_due(within=1)  # the notification arrives with the result of this statement
        bell.wait(LONG)


def test_no_connection_listens_behind_a_pooler(settings: Settings) -> None:
    settings.JOBS = settings.JOBS.model_copy(update={"poll_seconds": 0.01})
    with signals_as_bytes() as signals:
        NotificationListener(Channel.JOBS, interrupt=signals).wait(LONG)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_listening_channels()")
        assert cursor.fetchall() == []
        wake_workers()  # has no effect
