"""Writing after requests: items that could not be written are written once the database is back."""

import time
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection

from sessions_app.database import deferred
from sessions_app.database.deferred import WriteBuffer
from tests.support.processes import database_url

pytestmark = pytest.mark.django_db(transaction=True)


class Writer:
    """A writer that calls `first` on the first attempt, and records all batches that it then receives."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._first = first
        self.written: list[int] = []
        self.tries = 0

    def __call__(self, batch: list[int]) -> None:
        self.tries += 1
        if self.tries == 1:
            self._first()
        self.written += batch


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def cut() -> None:
    """Lose the connection, as in a restart of the database."""
    connection.ensure_connection()
    with psycopg.connect(database_url()) as other:
        other.execute("SELECT pg_terminate_backend(%s, 30000)", [connection.connection.info.backend_pid])
    execute("SELECT 1")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_items_are_written_when_the_database_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "INTERVAL", 0.01)
    writer = Writer(cut)
    behind = WriteBuffer("test", writer)
    behind.add(1)  # no later item triggers the retry
    wait_until(lambda: writer.written == [1])
    behind.stop()
    assert (writer.tries, behind.pending()) == (2, [])


def test_failed_items_stay_first_and_the_oldest_are_dropped_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "MAX_WAITING", 3)

    def meanwhile() -> None:
        behind.add(4)
        cut()

    behind = WriteBuffer("test", writer := Writer(meanwhile))
    for number in (1, 2, 3):
        behind.add(number)
    behind.flush()
    assert behind.pending() == [2, 3, 4]
    connection.close()
    behind.stop()
    assert writer.written == [2, 3, 4]


def test_items_that_cannot_be_written_are_dropped() -> None:
    behind = WriteBuffer("test", writer := Writer(lambda: execute("SELECT 1 / 0")))
    behind.add(1)
    behind.flush()
    assert behind.pending() == []
    behind.add(2)
    behind.stop()
    assert writer.written == [2]
