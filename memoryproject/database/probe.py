"""Probe the database when a request waits too long, so the request can fail fast."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import psycopg
import structlog
from django.db import connection

from sessions_app.database.transactions import Deadline

T = TypeVar("T")
logger = structlog.get_logger(__name__)

USUAL_SECONDS = 0.2  # most requests take less
RESPONSE_TIMEOUT = 0.5  # maximum seconds for the database to respond
FRESH_SECONDS = 1.0  # how long a response is valid, because many requests may wait at once
PROBE_SECONDS = 60  # after this time, an unanswered probe is abandoned and repeated
LOST_SECONDS = 5  # a connection is dropped if the peer doesn't acknowledge data for this long


class DatabaseHangs(Exception):
    """The database does not respond."""


class DeadlinePassed(Exception):
    """The request took too long."""


class DatabaseProbe:
    """Sends one probe at a time. The probes have their own connection and thread, so they never wait for free ones.

    The connection stays open, because PostgreSQL is slow to start a new process on a busy machine.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="database-probe")
        self._query: Future[None] | None = None
        self._sent_at = -FRESH_SECONDS
        self._connection: psycopg.Connection | None = None  # used only in the probe's thread

    def check(self) -> None:
        """Raise `DatabaseHangs` while a probe is overdue, so the request fails immediately."""
        is_open = self._query is not None and not self._query.done()
        if is_open and time.monotonic() - self._sent_at > RESPONSE_TIMEOUT:
            raise DatabaseHangs

    async def result(
        self, work: asyncio.Future[T], may_abandon: Callable[[], bool], deadline: Deadline | None = None
    ) -> T:
        """Return the result of database work. Abandon the work if the database hangs or the deadline passes.

        Args:
            may_abandon: Returns whether the work can be abandoned safely.

        Raises:
            DatabaseHangs: The database does not respond, and the work was abandoned.
            DeadlinePassed: The deadline has passed, and the work was abandoned.
        """
        while not (await asyncio.wait({work}, timeout=USUAL_SECONDS))[0]:
            if deadline and deadline.left <= 0 and may_abandon():
                work.add_done_callback(_forget)
                raise DeadlinePassed
            if not await self._is_responding() and not work.done() and may_abandon():
                logger.warning("the database does not respond", seconds=round(time.monotonic() - self._sent_at, 1))
                work.add_done_callback(_forget)
                raise DatabaseHangs
        return work.result()

    async def _is_responding(self) -> bool:
        """Return whether the database responds to a probe. A response within the last `FRESH_SECONDS` counts too."""
        if self._query is None or self._query.done():
            if time.monotonic() - self._sent_at < FRESH_SECONDS:
                return True
            self._sent_at = time.monotonic()
            self._query = self._executor.submit(self._send)
        await asyncio.wait({asyncio.wrap_future(self._query)}, timeout=RESPONSE_TIMEOUT)
        return self._query.done()

    def _send(self) -> None:
        """Wait until the database responds. An error is a response too."""
        try:
            self._connection = self._connection or _connected()
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


def _connected() -> psycopg.Connection:
    wait = {"connect_timeout": PROBE_SECONDS, "tcp_user_timeout": LOST_SECONDS * 1_000}
    # Don't prepare statements: behind a pooler, they exist only within their transaction.
    once = {"autocommit": True, "prepare_threshold": None}
    return psycopg.connect(**(connection.get_connection_params() | wait | once))


def _forget(work: asyncio.Future[T]) -> None:
    """Retrieve the exception of abandoned work, so asyncio doesn't log it."""
    if not work.cancelled():
        work.exception()


PROBE = DatabaseProbe()
