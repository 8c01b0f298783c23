"""The next test gets a connection in the state of a new one, and never a broken one."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from django.db import connection

from tests.support.fresh_database import FreshDatabase
from tests.support.kept_connection import KeptConnection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kept(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptConnection]:
    """Yield a connection keeper for this test, in addition to that of the run."""
    with closing(KeptConnection(monkeypatch)) as made:
        yield made


def ask(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def backend() -> int:
    return int(ask("SELECT pg_backend_pid()"))


def test_the_next_test_gets_the_connection_without_its_session_state(kept: KeptConnection) -> None:
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
    kept.keep()
    assert connection.connection is None
    assert backend() == before
    assert [ask(sql) for sql in left] == [0] * len(left)


def test_a_connection_that_is_lost_or_in_a_transaction_is_closed(kept: KeptConnection) -> None:
    with closing(FreshDatabase(kept)) as fresh:
        before = backend()
        connection.set_autocommit(False)
        fresh.restore()
        assert (after := backend()) != before
        connection.connection.close()
        fresh.restore()
        assert backend() != after


def test_another_database_gets_a_new_connection(kept: KeptConnection) -> None:
    before = backend()
    kept.keep()
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), current_database()")
        assert cursor.fetchone() != (before, connection.settings_dict["NAME"])
    assert backend() == before
