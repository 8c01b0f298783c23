"""Probe the database when a request waits too long, so the request can fail fast."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import psycopg
import structlog
from django.db import connection

from sessions_app.database.statement_timeouts import Deadline

T = TypeVar("T")
logger = structlog.get_logger(__name__)

USUAL_SECONDS = 0.2  # most requests take less
PATIENCE = 0.5  # maximum seconds for the database to respond
FRESH_SECONDS = 1.0  # how long a response is valid, because many requests may wait at once
QUESTION_SECONDS = 60  # after this time, an unanswered probe is abandoned and repeated
LOST_SECONDS = 5  # after which a connection whose peer does not acknowledge data is dropped


class NoAnswer(Exception):
    """The database does not respond."""


class DeadlinePassed(Exception):
    """The request took too long."""


class Pulse:
    """Sends one probe at a time, on a connection and a thread of its own, so a probe never waits for a free one.

    The connection stays open, because PostgreSQL is slow to start a new process on a busy machine.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="pulse")
        self._question: Future[None] | None = None
        self._asked_at = -FRESH_SECONDS
        self._connection: psycopg.Connection | None = None  # used only in the probe's thread

    def check(self) -> None:
        """Raise `NoAnswer` while a probe is overdue, so the request fails immediately."""
        is_open = self._question is not None and not self._question.done()
        if is_open and time.monotonic() - self._asked_at > PATIENCE:
            raise NoAnswer

    async def result(
        self, work: asyncio.Future[T], may_leave: Callable[[], bool], deadline: Deadline | None = None
    ) -> T:
        """Return the result of work with the database. Abandon the work if the database hangs or the deadline passes.

        Args:
            may_leave: Returns whether the work can be abandoned safely.

        Raises:
            NoAnswer: The database does not respond, and the work was abandoned.
            DeadlinePassed: The deadline has passed, and the work was abandoned.
        """
        while not (await asyncio.wait({work}, timeout=USUAL_SECONDS))[0]:
            if deadline and deadline.left <= 0 and may_leave():
                work.add_done_callback(_forget)
                raise DeadlinePassed
            if not await self._is_responding() and not work.done() and may_leave():
                logger.warning("the database does not respond", seconds=round(time.monotonic() - self._asked_at, 1))
                work.add_done_callback(_forget)
                raise NoAnswer
        return work.result()

    async def _is_responding(self) -> bool:
        """Return whether the database responds, or responded within the last `FRESH_SECONDS`."""
        if self._question is None or self._question.done():
            if time.monotonic() - self._asked_at < FRESH_SECONDS:
                return True
            self._asked_at = time.monotonic()
            self._question = self._executor.submit(self._ask)
        await asyncio.wait({asyncio.wrap_future(self._question)}, timeout=PATIENCE)
        return self._question.done()

    def _ask(self) -> None:
        """Wait until the database responds. An error is a response too."""
        try:
            self._connection = self._connection or _connected()
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


def _connected() -> psycopg.Connection:
    wait = {"connect_timeout": QUESTION_SECONDS, "tcp_user_timeout": LOST_SECONDS * 1_000}
    # Behind a pooler, prepared statements end with their transaction.
    once = {"autocommit": True, "prepare_threshold": None}
    return psycopg.connect(**(connection.get_connection_params() | wait | once))


def _forget(work: asyncio.Future[T]) -> None:
    """Retrieve the exception of abandoned work, so asyncio doesn't log it."""
    if not work.cancelled():
        work.exception()


PULSE = Pulse()
