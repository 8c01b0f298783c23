"""Hooks for optional packages that use several database servers.

Without such a package, one database has all rows and serves all reads.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from django.http import HttpRequest

T = TypeVar("T")


class Reader(Protocol):
    """Runs reads on a replica."""

    def from_replica(self, request: HttpRequest, read: Callable[[], T]) -> T: ...
    def from_replica_as_of_now(self, read: Callable[[], T]) -> T: ...


distributed_table_sources: list[Callable[[], Sequence[str]]] = []
_readers: list[Reader] = []


def remote_tables() -> list[str]:
    return [table for tables in distributed_table_sources for table in tables()]


def set_reader(reader: Reader) -> None:
    _readers[:] = [reader]


def read_for_page(request: HttpRequest, read: Callable[[], T]) -> T:
    """Return the result of `read`, which may be called twice.

    It may not include changes that others made in the last minute.
    """
    return _readers[0].from_replica(request, read) if _readers else read()


def read_as_of_now(read: Callable[[], T]) -> T:
    """Return the result of `read`, which includes everything committed before this call. `read` may be called twice."""
    return _readers[0].from_replica_as_of_now(read) if _readers else read()
