"""A new connection of a test is a kept one in the state of a new one, and never a broken one."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from threading import Thread
from typing import Any

import pytest
from django.db import connection

from tests.support.concurrency import on_its_own_connection, other_connections
from tests.support.kept_connections import KeptConnections

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kept(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptConnections]:
    """Yield a connection keeper for this test, in addition to that of the run."""
    connection.close()  # it keeps only connections that it has opened
    with closing(KeptConnections(monkeypatch)) as made:
        yield made


def ask(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def backend() -> int:
    return int(ask("SELECT pg_backend_pid()"))


@pytest.mark.usefixtures("kept")
def test_the_next_connection_has_no_session_state_of_the_last() -> None:
    before = backend()
    left = (
        "SELECT count(*) FROM pg_class WHERE relname = 'of_the_last'",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "SELECT count(*) FROM pg_listening_channels()",
        "SELECT count(*) FROM pg_settings WHERE name IN ('lock_timeout', 'search_path') AND source = 'session'",
    )
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE of_the_last (id int); LISTEN of_the_last; SET lock_timeout = 7")
        cursor.execute("SELECT pg_advisory_lock(7); SET search_path = pg_temp")
    assert [ask(sql) for sql in left] == [1, 1, 1, 2]
    connection.close()
    assert connection.connection is None
    assert backend() == before
    assert [ask(sql) for sql in left] == [0] * len(left)


@pytest.mark.usefixtures("kept")
def test_a_thread_gets_the_connection_of_another() -> None:
    found = [backend()]
    connection.close()
    thread = Thread(target=on_its_own_connection, args=(lambda: found.append(backend()),))
    thread.start()
    thread.join()
    assert found == [backend()] * 2
    assert other_connections() == 0


@pytest.mark.usefixtures("kept")
def test_a_connection_that_is_lost_or_in_a_transaction_is_closed() -> None:
    before = backend()
    connection.set_autocommit(False)
    ask("SELECT 1")
    connection.close()
    assert (after := backend()) != before
    connection.connection.close()
    connection.close()
    assert backend() != after


@pytest.mark.usefixtures("kept")
def test_a_connection_that_the_server_has_ended_since_is_replaced() -> None:
    ended = backend()
    other = connection.copy()
    with closing(other), other.cursor() as cursor:
        connection.close()
        cursor.execute("SELECT pg_terminate_backend(%s, 20000)", [ended])
        assert backend() != ended


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
def test_a_forked_process_gets_a_new_connection() -> None:
    before = backend()
    connection.close()
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        assert pool.submit(backend).result() != before
    assert backend() == before


@pytest.mark.usefixtures("kept")
def test_another_database_gets_a_new_connection() -> None:
    before = backend()
    connection.close()
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), current_database()")
        assert cursor.fetchone() != (before, connection.settings_dict["NAME"])
    assert backend() == before
