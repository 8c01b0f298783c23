"""Concurrent work in tests."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from tests.support.fresh_database import FreshDatabase
from tests.support.waiting import TIMEOUT, wait_until


def at_once(work: Callable[[int], Any], workers: int) -> list[Any]:
    """Run `work(0..workers-1)` in threads that start together, each with its own connection."""
    barrier = threading.Barrier(workers)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda number: on_its_own_connection(run, number), range(workers)))


def on_its_own_connection(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a separate thread, whose connection is then closed."""
    try:
        return work(*arguments)
    finally:
        connection.close()


def other_connections() -> int:
    """Return the number of database connections, except this thread's and that of `FreshDatabase`.

    Connections of ended threads are closed first. PostgreSQL ends their processes a moment later, so this waits up to
    ten seconds until there are none.
    """
    gc.collect()
    deadline = time.monotonic() + 10
    while (others := _other_connections()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return others


def _other_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # otherwise, a transaction repeats its first result
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND application_name <> %s",
            [FreshDatabase.NAME],
        )
        [others] = cursor.fetchone()
    return int(others)


def wait_until_somebody_waits(number: int = 1) -> None:
    """Wait until other connections to this database wait for locks."""
    wait_until(lambda: waiting() >= number)


def waiting() -> int:
    """Return how many connections to this database wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # otherwise, a transaction repeats its first result
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        [number] = cursor.fetchone()
    return int(number)


@contextmanager
def before_its_commit(table: str, work: Callable[[], Any]) -> Iterator[None]:
    """Insert rows into a table in another thread. Their transaction commits after the block."""
    lock = "SELECT pg_advisory_xact_lock(1)"
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS "
            f"'BEGIN PERFORM ({lock}); RETURN NULL; END'; "
            f"CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION wait_for_test()"
        )
        try:
            with ThreadPoolExecutor(1) as pool:
                with transaction.atomic():
                    cursor.execute(lock)
                    stored = pool.submit(on_its_own_connection, work)
                    wait_until_somebody_waits()
                    yield
                stored.result(TIMEOUT)
        finally:
            cursor.execute("DROP FUNCTION wait_for_test CASCADE")
