"""Doing things at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connection


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
