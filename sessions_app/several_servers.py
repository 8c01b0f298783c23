"""Where an extra plugs in that uses more database servers than one.

Without one, everything is read from the database, which has all rows.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from django.http import HttpRequest

T = TypeVar("T")


class Reader(Protocol):
    """What reads from another server that has the same rows."""

    def from_replica(self, request: HttpRequest, read: Callable[[], T]) -> T: ...
    def from_replica_as_of_now(self, read: Callable[[], T]) -> T: ...


# Each returns the tables whose rows other servers hold.
spread_tables: list[Callable[[], Sequence[str]]] = []
_readers: list[Reader] = []


def tables_elsewhere() -> list[str]:
    """Return the tables whose rows other servers hold."""
    return [table for tables in spread_tables for table in tables()]


def send_reads(reader: Reader) -> None:
    """Read pages and exports through this from now on."""
    _readers[:] = [reader]


def read_for_page(request: HttpRequest, read: Callable[[], T]) -> T:
    """Return a page, or what a page shows, which may lack what others changed within the last minute.

    Args:
        request: The request for the page.
        read: Makes the page. It only reads rows, and may be called twice.
    """
    return _readers[0].from_replica(request, read) if _readers else read()


def read_as_of_now(read: Callable[[], T]) -> T:
    """Return what `read` returns, with everything that was committed before this call.

    Args:
        read: Only reads rows, and may be called twice.
    """
    return _readers[0].from_replica_as_of_now(read) if _readers else read()
