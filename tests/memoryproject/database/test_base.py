"""Few round trips per request, without weakening transactions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from memoryproject.database.base import DatabaseWrapper
from sessions_app.models import Event

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pooled() -> Iterator[DatabaseWrapper]:
    """A connection of a pool, as in a web process."""
    wrapper: Any = connection.copy()
    assert isinstance(wrapper, DatabaseWrapper)
    options = connection.settings_dict["OPTIONS"] | {"pool": {"min_size": 1, "max_size": 1, "timeout": 15}}
    wrapper.settings_dict = connection.settings_dict | {
        "OPTIONS": options,
        "CONN_HEALTH_CHECKS": False,
        "CONN_MAX_AGE": 0,
    }
    yield wrapper
    wrapper.close()
    wrapper.close_pool()


def sent_by(wrapper: Any, trace: Path, work: Any) -> list[str]:
    """Return the messages that the work sends, from libpq's trace."""
    wrapper.ensure_connection()
    with trace.open("wb") as file:
        wrapper.connection.pgconn.trace(file.fileno())
        work()
        wrapper.connection.pgconn.untrace()
    lines = trace.read_text().splitlines()
    return [line.split("\t")[-1].strip() for line in lines if "\tF\t" in line]


def ask(wrapper: Any, sql: str, *parameters: Any) -> Any:
    with wrapper.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return cursor.fetchone()[0]


def test_begin_is_sent_with_the_first_statement(tmp_path: Path) -> None:
    def work() -> None:
        with transaction.atomic():
            assert ask(connection, "SELECT %s || '%%'", "a;b") == "a;b%"
            assert ask(connection, "SELECT 2") == 2

    queries = sent_by(connection, tmp_path / "trace", work)
    assert len(queries) == 3 and "BEGIN" in queries[0] and "a;b" in queries[0], queries
    assert "COMMIT" in queries[-1]


def test_a_failed_first_statement_leaves_no_open_transaction() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        ask(connection, "SELECT nothing_of_that_name")
    with transaction.atomic():
        Event.objects.create(type="first")
        with pytest.raises(DatabaseError), transaction.atomic():
            ask(connection, "SELECT 1 / 0")
        Event.objects.create(type="second")
    assert list(Event.objects.order_by("pk").values_list("type", flat=True)) == ["first", "second"]


def test_a_rolled_back_transaction_writes_nothing() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Event.objects.create(type="first")
        raise ZeroDivisionError
    assert not Event.objects.exists()


def test_a_transaction_keeps_the_read_only_mode_of_its_connection() -> None:
    connection.ensure_connection()
    connection.connection.read_only = True
    try:
        with transaction.atomic():
            assert ask(connection, "SHOW transaction_read_only") == "on"
    finally:
        connection.connection.read_only = None


def test_a_recently_used_connection_is_not_checked(pooled: DatabaseWrapper, tmp_path: Path) -> None:
    backend = ask(pooled, "SELECT pg_backend_pid()")
    raw = pooled.connection
    with (tmp_path / "trace").open("wb") as file:
        raw.pgconn.trace(file.fileno())
        pooled.close()
        assert ask(pooled, "SELECT pg_backend_pid()") == backend
        raw.pgconn.untrace()
    assert (tmp_path / "trace").read_text().count("\tF\t") == 1


def test_a_connection_that_the_server_closed_is_replaced(pooled: DatabaseWrapper) -> None:
    backend = ask(pooled, "SELECT pg_backend_pid()")
    pooled.close()
    assert ask(connection, "SELECT pg_terminate_backend(%s, 20000)", backend)
    assert ask(pooled, "SELECT pg_backend_pid()") != backend


def test_chunked_reads_use_server_side_cursors_only_in_transactions() -> None:
    for kind in ("first", "second", "third"):
        Event.objects.create(type=kind)

    def cursors_meanwhile() -> int:
        rows = Event.objects.order_by("pk").iterator(chunk_size=1)
        assert next(rows).type == "first"
        found: int = ask(connection, "SELECT count(*) FROM pg_cursors WHERE name LIKE %s", "_django%")
        assert [row.type for row in rows] == ["second", "third"]
        return found

    assert cursors_meanwhile() == 0
    with transaction.atomic():
        assert cursors_meanwhile() == 1  # the cursor closes with the transaction; few rows are in memory
