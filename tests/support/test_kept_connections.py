"""Each connect gets a connection in the state of a new one, and never a broken one."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from tests.support.concurrency import on_its_own_connection, other_connections
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def ask(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def backend() -> int:
    return int(ask("SELECT pg_backend_pid()"))


def test_a_closed_connection_is_used_again_without_its_session_state() -> None:
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


def test_a_connection_that_is_lost_or_in_a_transaction_or_has_a_listener_is_closed() -> None:
    before = backend()
    connection.set_autocommit(False)
    connection.close()
    assert (after := backend()) != before
    connection.connection.close()
    connection.close()
    assert (last := backend()) not in (before, after)
    connection.connection.add_notify_handler(print)
    connection.close()
    assert backend() != last


def test_another_database_gets_a_new_connection_which_is_closed() -> None:
    before = backend()
    connection.close()
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [other] = cursor.fetchone()
    assert backend() == before != other
    wait_until(lambda: ask(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {other}") == 0)


def test_kept_connections_of_other_threads_are_not_counted_as_open() -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(on_its_own_connection, backend).result()
    assert other_connections() == 0
    connection.close()
    assert backend() != other
