"""Hooks for an extra that uses several database servers.

Without such an extra, one database has all rows and serves all reads.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from django.http import HttpRequest

T = TypeVar("T")


class Reader(Protocol):
    """Reads from another server with the same rows."""

    def from_replica(self, request: HttpRequest, read: Callable[[], T]) -> T: ...
    def from_replica_as_of_now(self, read: Callable[[], T]) -> T: ...


# Each function returns the tables whose rows are on other servers.
spread_tables: list[Callable[[], Sequence[str]]] = []
_readers: list[Reader] = []


def tables_elsewhere() -> list[str]:
    """Return the tables whose rows are on other servers."""
    return [table for tables in spread_tables for table in tables()]


def send_reads(reader: Reader) -> None:
    """Register a reader for pages and exports."""
    _readers[:] = [reader]


def read_for_page(request: HttpRequest, read: Callable[[], T]) -> T:
    """Return a page, or its data. Changes that others made within the last minute may be missing.

    Args:
        read: Creates the page. It only reads rows, and may be called twice.
    """
    return _readers[0].from_replica(request, read) if _readers else read()


def read_as_of_now(read: Callable[[], T]) -> T:
    """Return the result of `read`, which includes everything that was committed before this call.

    Args:
        read: Only reads rows, and may be called twice.
    """
    return _readers[0].from_replica_as_of_now(read) if _readers else read()
