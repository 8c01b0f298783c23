"""Whether the database answers at all: asked for those who wait longer than usual, so that they don't for ever."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import psycopg
import structlog
from django.db import connection

from sessions_app.limits import Deadline

T = TypeVar("T")
logger = structlog.get_logger(__name__)

USUAL_SECONDS = 0.2  # for an answer to a request
PATIENCE = 0.5  # seconds within which the database answers
FRESH_SECONDS = 1.0  # for which an answer is good: many may wait at once
QUESTION_SECONDS = 60  # after which an unanswered question is given up, and put again
LOST_SECONDS = 5  # after which a connection is gone of which the other end doesn't even take what is sent


class NoAnswer(Exception):
    """The database does not answer."""


class DeadlinePassed(Exception):
    """The request took too long."""


class Pulse:
    """One question at a time, by a connection and a thread of its own: neither is ever short of them.

    The connection is kept, as a busy machine takes long to start PostgreSQL's process for a new one.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="pulse")
        self._question: Future[None] | None = None
        self._asked_at = -FRESH_SECONDS
        self._connection: psycopg.Connection | None = None  # of the thread's alone

    def check(self) -> None:
        """Refuse to begin anything while a question waits for its answer longer than it should.

        Raises:
            NoAnswer: one does.
        """
        is_open = self._question is not None and not self._question.done()
        if is_open and time.monotonic() - self._asked_at > PATIENCE:
            raise NoAnswer

    async def result(
        self, work: asyncio.Future[T], may_leave: Callable[[], bool], deadline: Deadline | None = None
    ) -> T:
        """Return the result of work with the database; abandon the work if the database hangs or the deadline passes.

        Args:
            work: the running work.
            may_leave: returns whether the work can be abandoned safely.
            deadline: the deadline of the request.

        Raises:
            NoAnswer: the database does not answer, and the work was abandoned.
            DeadlinePassed: the deadline has passed, and the work was abandoned.
        """
        while not (await asyncio.wait({work}, timeout=USUAL_SECONDS))[0]:
            if deadline and deadline.left <= 0 and may_leave():
                work.add_done_callback(_forget)
                raise DeadlinePassed
            if not await self._is_felt() and not work.done() and may_leave():
                logger.warning("the database does not answer", seconds=round(time.monotonic() - self._asked_at, 1))
                work.add_done_callback(_forget)
                raise NoAnswer
        return work.result()

    async def _is_felt(self) -> bool:
        """Return whether the database answers, or did a moment ago."""
        if self._question is None or self._question.done():
            if time.monotonic() - self._asked_at < FRESH_SECONDS:
                return True
            self._asked_at = time.monotonic()
            self._question = self._executor.submit(self._ask)
        await asyncio.wait({asyncio.wrap_future(self._question)}, timeout=PATIENCE)
        return self._question.done()

    def _ask(self) -> None:
        """Return as soon as the database answers, be it with an error."""
        try:
            self._connection = self._connection or _connected()
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


def _connected() -> psycopg.Connection:
    wait = {"connect_timeout": QUESTION_SECONDS, "tcp_user_timeout": LOST_SECONDS * 1_000}
    # Prepared statements don't outlive a transaction behind a pooler.
    once = {"autocommit": True, "prepare_threshold": None}
    return psycopg.connect(**(connection.get_connection_params() | wait | once))


def _forget(work: asyncio.Future[T]) -> None:
    """Take notice of how something ended that nobody waits for."""
    if not work.cancelled():
        work.exception()


PULSE = Pulse()
