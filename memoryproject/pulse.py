"""Whether the database answers at all: asked for those who wait longer than usual, so that they don't for ever."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
from django.db import connection

PATIENCE = 0.5  # seconds within which it answers
FRESH_SECONDS = 1.0  # for which an answer is good: many may wait at once
QUESTION_SECONDS = 60  # after which an unanswered question is given up, and put again


class Pulse:
    """One question at a time, by a connection and a thread of its own: neither is ever short of them."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="pulse")
        self._question: asyncio.Future[None] | None = None
        self._asked_at = -FRESH_SECONDS

    @property
    def is_missed(self) -> bool:
        """True while a question waits for its answer longer than it should."""
        is_open = self._question is not None and not self._question.done()
        return is_open and time.monotonic() - self._asked_at > PATIENCE

    async def is_felt(self) -> bool:
        """Return whether the database answers, or did a moment ago."""
        if self._question is None or self._question.done():
            if time.monotonic() - self._asked_at < FRESH_SECONDS:
                return True
            self._asked_at = time.monotonic()
            self._question = asyncio.get_running_loop().run_in_executor(self._executor, _ask)
        await asyncio.wait({self._question}, timeout=PATIENCE)
        return self._question.done()


def _ask() -> None:
    """Return as soon as the database answers, be it with an error."""
    parameters = connection.get_connection_params() | {"connect_timeout": QUESTION_SECONDS}
    with suppress(psycopg.Error), psycopg.connect(**parameters) as asking:
        asking.execute("SELECT 1")
