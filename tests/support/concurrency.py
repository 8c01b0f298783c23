"""Doing things at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connection

from tests.support.fresh_database import FreshDatabase
from tests.support.waiting import wait_until


def at_once(work: Callable[[int], Any], workers: int) -> list[Any]:
    """Runs `work(0..workers-1)` in threads that start together, each with its own connection."""
    barrier = threading.Barrier(workers)

    def run(number: int) -> Any:
        try:
            barrier.wait()
            return work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


def other_connections() -> int:
    """Return how many connections the database has beside this thread's and the one that gives it back."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND application_name <> %s",
            [FreshDatabase.NAME],
        )
        [others] = cursor.fetchone()
    return int(others)


def wait_until_somebody_waits() -> None:
    """Return when another connection to this database waits for a lock."""
    wait_until(_somebody_waits)


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_locks WHERE database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database()))"
        )
        return bool(cursor.fetchone() != (0,))
