"""Writing behind requests: what finds the database away is written when it is back."""

import time
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection

from sessions_app.database import deferred_writes
from sessions_app.database.deferred_writes import WriteBehind
from tests.support.processes import database_url

pytestmark = pytest.mark.django_db(transaction=True)


class Writer:
    """Does something else the first time; then it takes everything."""

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
    """Lose the connection, as when the database is started again."""
    connection.ensure_connection()
    with psycopg.connect(database_url()) as other:
        other.execute("SELECT pg_terminate_backend(%s, 30000)", [connection.connection.info.backend_pid])
    execute("SELECT 1")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_finds_the_database_away_is_written_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_writes, "EVERY", 0.01)
    writer = Writer(cut)
    behind = WriteBehind("test", writer)
    behind.note(1)  # nothing else is noted, and nobody asks again
    wait_until(lambda: writer.written == [1])
    behind.stop()
    assert (writer.tries, behind.waiting()) == (2, [])


def test_it_comes_before_what_was_noted_meanwhile_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_writes, "MOST_WAITING", 3)

    def meanwhile() -> None:
        behind.note(4)
        cut()

    behind = WriteBehind("test", writer := Writer(meanwhile))
    for number in (1, 2, 3):
        behind.note(number)
    behind.flush()
    assert behind.waiting() == [2, 3, 4]
    connection.close()
    behind.stop()
    assert writer.written == [2, 3, 4]


def test_what_cannot_be_written_for_what_it_is_is_let_go() -> None:
    behind = WriteBehind("test", writer := Writer(lambda: execute("SELECT 1 / 0")))
    behind.note(1)
    behind.flush()
    assert behind.waiting() == []
    behind.note(2)
    behind.stop()
    assert writer.written == [2]
