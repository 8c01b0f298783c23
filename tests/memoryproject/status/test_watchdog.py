"""The watchdog: when it detects a change of the state, and what it does then."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from memoryproject.database import timeouts
from memoryproject.database.timeouts import DatabaseUnavailable, database
from memoryproject.status import checks
from memoryproject.status.notifications import Webhook
from memoryproject.status.site_state import (
    CHANGED,
    Change,
    last_change,
    last_changes,
    record_refused_providers,
    refused_providers,
    restarts,
)
from memoryproject.status.watchdog import Watchdog
from moments_app.models import Job
from sessions_app.models import Event, UserProfile
from tests.support.newer import newer_version
from tests.support.openai_server import OpenAIServer, error
from tests.support.other_database import connected_to
from tests.support.processes import worker
from tests.support.receiver import Receiver
from tests.support.transcript import talk
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

AFTER = 15.0


class Watched:
    """A watchdog whose clock the test sets.

    Args:
        receiver: the receiver of its notifications.
    """

    def __init__(self, receiver: Receiver) -> None:
        self.now = 0.0
        self.watch = Watchdog([Webhook(receiver.url, "")], after=AFTER, clock=lambda: self.now)

    def check(self, seconds: float = 0.0) -> None:
        """Check now, check again after this many seconds, and a third time to record the end of a delivery."""
        self.watch.check()
        if seconds:
            self.now += seconds
            self.watch.check()
            self.watch.check()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the database more time, so a busy machine does not make it count as down."""
    monkeypatch.setattr(timeouts, "RESPONSE_TIMEOUT", float(TIMEOUT))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def watched(receiver: Receiver) -> Watched:
    """A watchdog that has recorded a site that is up."""
    watched = Watched(receiver)
    watched.check(AFTER)
    assert last_change() is not None
    return watched


def be_late(user: UserProfile) -> None:
    """Queue a job that waits too long for a worker."""
    Job.objects.request("build_moments", talk(user, 3), requested_by="test")
    Job.objects.update(run_after=timezone.now() - timedelta(minutes=10))


@contextmanager
def away() -> Iterator[None]:
    """Make the database unavailable."""
    with connected_to("nowhere"):
        yield


def states() -> list[str]:
    return [str(change.state) for change in reversed(last_changes(10))]


def test_a_change_logs_a_warning_and_a_new_site_that_is_up_does_not(
    receiver: Receiver, ada: UserProfile, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(receiver)
    watched.check(AFTER)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    be_late(ada)
    watched.check(AFTER + 5)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


@pytest.mark.slow
def test_a_change_is_recorded_and_sent_with_its_reasons(watched: Watched, receiver: Receiver, ada: UserProfile) -> None:
    be_late(ada)
    watched.check(AFTER + 5)
    assert states() == ["up", "degraded"]
    [told] = receiver.told
    assert (told["state"], told["previous"]) == ("degraded", "up")
    assert told["reasons"][0].startswith("A due job has waited for ")
    Job.objects.all().delete()
    watched.check(AFTER + 5)
    assert states() == ["up", "degraded", "up"]
    assert receiver.told[1]["previous"] == "degraded" and receiver.told[1]["reasons"] == []
    watched.check(60)
    assert len(receiver.told) == 2


@pytest.mark.parametrize("ahead", [timedelta(minutes=1), timedelta(days=1), timedelta(days=365)], ids=str)
def test_row_48_a_state_recorded_in_the_future_suppresses_no_alarm(
    watched: Watched, receiver: Receiver, ada: UserProfile, ahead: timedelta
) -> None:
    last, future = Event.objects.filter(type=CHANGED).latest("pk"), timezone.now() + ahead
    last.created_at, last.payload["since"] = future, future.isoformat()
    last.save()
    be_late(ada)
    watched.check(AFTER + 5)
    assert states() == ["up", "degraded"]
    assert [told["state"] for told in receiver.told] == ["degraded"]


@pytest.mark.slow
def test_a_brief_problem_is_not_a_change(watched: Watched, receiver: Receiver, ada: UserProfile) -> None:
    for _ in range(3):
        be_late(ada)
        watched.check(AFTER - 5)
        Job.objects.all().delete()
        watched.check()
    assert states() == ["up"] and receiver.told == []


@pytest.mark.slow
def test_only_one_of_two_watchdogs_records_and_sends_a_change(
    watched: Watched, receiver: Receiver, ada: UserProfile
) -> None:
    other = Watched(receiver)
    be_late(ada)
    for _ in range(3):
        watched.check(10)
        other.check(10)
    assert states() == ["up", "degraded"]
    assert len(receiver.told) == 1


def test_an_unavailable_database_is_reported_at_once_and_recorded_later(watched: Watched, receiver: Receiver) -> None:
    with away():
        watched.check(AFTER + 5)
        assert [told["state"] for told in receiver.told] == ["down"]
        assert "database" in receiver.told[0]["reasons"][0] or "No answer" in receiver.told[0]["reasons"][0]
    watched.check(AFTER + 5)
    assert states() == ["up", "down", "up"]
    assert [told["state"] for told in receiver.told] == ["down", "up"]
    down = last_changes(2)[1]
    assert down.since.isoformat(timespec="milliseconds") == receiver.told[0]["since"]


@pytest.mark.slow
def test_a_late_watchdog_does_not_record_a_past_state(watched: Watched, receiver: Receiver) -> None:
    other = Watched(receiver)
    other.check()
    with away():
        watched.check(AFTER + 5)
        other.check(AFTER + 5)
    watched.check(AFTER + 5)
    other.check(AFTER + 5)
    assert states() == ["up", "down", "up"]
    assert [told["state"] for told in receiver.told] == ["down", "down", "up"]


@pytest.mark.slow
def test_an_undelivered_change_is_sent_by_the_next_watchdog(
    watched: Watched, receiver: Receiver, ada: UserProfile
) -> None:
    receiver.statuses = [500] * 100
    be_late(ada)
    watched.check(AFTER)
    tried = len(receiver.told)
    assert tried
    receiver.statuses = []
    following = Watched(receiver)
    following.check(10)
    assert len(receiver.told) == tried  # the first watchdog may still be sending it
    Event.objects.filter(type="state_changed").update(created_at=timezone.now() - timedelta(minutes=2))
    following.check(10)
    watched.check(60)
    assert len(receiver.told) == tried + 1


def test_an_undelivered_change_is_replaced_by_the_next(watched: Watched, receiver: Receiver, ada: UserProfile) -> None:
    receiver.statuses = [500] * 2
    be_late(ada)
    watched.check(AFTER)
    Job.objects.all().delete()
    watched.check(AFTER + 60)
    assert receiver.told[-1]["state"] == "up"
    assert last_change() == Change.of(Event.objects.filter(type="state_changed").latest("id"))
    assert [told["state"] for told in receiver.told].count("up") == 1


def test_a_site_that_is_up_from_the_start_sends_nothing(watched: Watched, receiver: Receiver) -> None:
    watched.check(60)
    assert receiver.told == []


@pytest.mark.parametrize("held_by", ["circuit", "budget"])
def test_a_held_job_degrades_the_site(watched: Watched, receiver: Receiver, ada: UserProfile, held_by: str) -> None:
    Job.objects.request("build_moments", talk(ada, 3), requested_by="test")
    later = timezone.now() + timedelta(minutes=1)
    Job.objects.update(run_after=later, held_by=held_by, held_since=timezone.now() - timedelta(minutes=2))
    watched.check(AFTER + 5)
    assert receiver.told[0]["state"] == "degraded"
    assert receiver.told[0]["reasons"][0].startswith(f"1 job has been waiting for {Job.Held(held_by).label} since ")


def test_repeated_crashes_and_refused_keys_degrade_the_site(watched: Watched, receiver: Receiver) -> None:
    for _ in range(3):
        Event.objects.create(type="process_restarted", actor="run", payload={"told": "The worker ended with status 1."})
    record_refused_providers(["Check ENGINE__API_KEY."])
    watched.check(AFTER + 5)
    assert receiver.told[0]["reasons"] == [
        "Check ENGINE__API_KEY.",
        "Processes crashed 3 times in 10 minutes. The latest: The worker ended with status 1.",
    ]


def test_newer_migrations_take_the_site_down(
    watched: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "is_schema_current", False)  # as in a process that starts now
    with newer_version():
        watched.check(AFTER + 5)
    assert receiver.told[0]["state"] == "down"
    assert "newer version" in receiver.told[0]["reasons"][0]


@pytest.mark.slow
def test_connecting_to_a_silent_database_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = {"host": "127.0.0.1", "port": silent.getsockname()[1]}
        connection.close()
        monkeypatch.setattr(connection, "get_connection_params", lambda: address)
        monkeypatch.setattr(timeouts, "RESPONSE_TIMEOUT", 0.3)
        with pytest.raises(DatabaseUnavailable, match=r"did not respond within 0\.3 s"), database():
            connection.ensure_connection()


@pytest.mark.slow
def test_a_hanging_statement_times_out_and_is_canceled(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "RESPONSE_TIMEOUT", 0.3)
    with pytest.raises(DatabaseUnavailable), database():
        connection.cursor().execute("SELECT pg_sleep(600)")

    def is_over() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep(600)%'"
            )
            return bool(cursor.fetchone() == (0,))

    wait_until(is_over)


@pytest.mark.slow
def test_qcluster_reports_a_wrong_key_and_a_killed_process(receiver: Receiver) -> None:
    with OpenAIServer() as provider:
        provider.models = error(401)
        variables = {"ENGINE__BASE_URL": provider.base_url, "NOTIFY__WEBHOOK_URL": receiver.url}
        with worker(**variables) as cluster:
            wait_until(lambda: bool(refused_providers()))
            cluster.members()[0].kill()
            wait_until(lambda: restarts(timedelta(minutes=1)).exists())
            wait_until(lambda: any("ENGINE__API_KEY" in str(told["reasons"]) for told in receiver.told))
