"""Few round trips per request, without weakening transactions."""

import re
import socket
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.db import DatabaseError, NotSupportedError, connection, transaction

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


def prepared_by(wrapper: DatabaseWrapper, *parameters: Any) -> list[str]:
    """Run a statement with each parameter in a transaction. Return what its connection has prepared."""
    wrapper.set_autocommit(False)
    ask(wrapper, "SELECT 1")
    for parameter in parameters:
        with wrapper.prepared_cursor() as cursor:
            cursor.execute("SELECT id FROM sessions_app_event WHERE id = %s", [parameter])
    with wrapper.cursor() as cursor:
        cursor.execute(
            "SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%sessions_app_event WHERE id%'"
        )
        found = [statement for (statement,) in cursor.fetchall()]
    wrapper.commit()
    wrapper.set_autocommit(True)
    return found


@contextmanager
def pooler(server: str, folder: str) -> Iterator[None]:
    """Forward the connections of a socket to the server, and report another process id than the server's."""
    name = ".s.PGSQL.5432"

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as upstream:
                upstream.connect(f"{server}/{name}")
                sending = Thread(target=self._copy, args=(self.request, upstream))
                sending.start()
                self._copy(upstream, self.request)
                sending.join()

        def _copy(self, source: socket.socket, target: socket.socket) -> None:
            while data := source.recv(65_536):
                target.sendall(re.sub(rb"K\0\0\0\x0c.{4}", b"K\0\0\0\x0c\0\0\0\1", data, flags=re.DOTALL))
            target.shutdown(socket.SHUT_WR)

    with socketserver.ThreadingUnixStreamServer(f"{folder}/{name}", Forward) as listening:
        Thread(target=listening.serve_forever).start()
        yield
        listening.shutdown()


def test_a_repeated_statement_is_prepared_once_for_integers_of_any_size() -> None:
    wrapper: Any = connection.copy()
    assert prepared_by(wrapper, 1, 2**40) == []
    [statement] = prepared_by(wrapper, 70_000, 2**40, 1)
    wrapper.close()
    assert statement == "SELECT id FROM sessions_app_event WHERE id = $1"


def test_the_first_statement_of_a_transaction_is_not_prepared() -> None:
    wrapper: Any = connection
    for _ in range(5):
        with transaction.atomic(), wrapper.prepared_cursor() as cursor:
            cursor.execute("SELECT 'alone'")
    assert ask(connection, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s", "%alone%") == 0


def test_a_statement_fails_only_once_after_a_migration_changed_the_type_of_its_result() -> None:
    wrapper: Any = connection.copy()

    def read() -> None:
        ask(wrapper, "SELECT 1")
        with wrapper.prepared_cursor() as prepared:
            prepared.execute("SELECT id FROM changed")
        wrapper.commit()

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE changed (id int)")
        wrapper.set_autocommit(False)
        for _ in range(4):
            read()
        cursor.execute("ALTER TABLE changed ALTER id TYPE text")
        with pytest.raises(NotSupportedError):
            read()
        wrapper.rollback()
        read()
        wrapper.close()
        cursor.execute("DROP TABLE changed")


@pytest.mark.slow
def test_nothing_is_prepared_behind_a_pooler(tmp_path: Path) -> None:
    wrapper: Any = connection.copy()
    with pooler(wrapper.get_connection_params()["host"], str(tmp_path)):
        wrapper.settings_dict = connection.settings_dict | {"EMBEDDED": False, "HOST": str(tmp_path)}
        assert ask(wrapper, "SELECT 1") == 1 and prepared_by(wrapper, 1, 2, 3) == []
        wrapper.connection.close()


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
