"""Write-ahead: if a process is killed, a round whose end the caller saw is stored, or will be at the next start.

The message is committed before the upstream is called, or spooled to disk while the database is down. Each part of the
answer is spooled before it is passed on. The end is passed on once the answer is committed or the spool is on disk. If
both fail, the call still continues, and the response says so.
"""

import asyncio
from functools import partial

import structlog
from django.db import DatabaseError

from moments_app.interfaces.chat.errors import FAILURES
from moments_app.interfaces.chat.rounds import Record, Round
from moments_app.interfaces.chat.threads import in_thread
from sessions_app.transcript.spool import Spool

STORED, SPOOLED, UNSTORED = "stored", "spooled", "unstored"
STORE_SECONDS = 2.0  # for storing an answer before its end; after that it is kept on disk
RETRY_SECONDS = (0.5, 2.0, 10.0)  # waits before each retry to store what couldn't be spooled

logger = structlog.get_logger(__name__)


class WriteAhead:
    """A round in progress, and where it is stored.

    Args:
        heard: the round.
        file: its spool; None if it can't be written.
    """

    def __init__(self, heard: Round, file: Spool | None) -> None:
        self.round, self._spool = heard, file
        self.words = SPOOLED if self._is_spooled else UNSTORED  # what happened to the message
        if heard.begun:
            self.words = STORED
        self.outcome = ""  # what happened to the answer; blank until it is known
        self._failure: Exception | None = None

    @classmethod
    async def begin(cls, said: Round, seconds: float) -> "WriteAhead":
        """Commit the message. If that fails, spool it.

        Args:
            said: the round.
            seconds: time limit for the database.
        """
        try:
            said.begun = await asyncio.wait_for(in_thread(said.begin), seconds)
        except Exception as error:
            logger.warning("a message waits in the spool", error=type(error).__name__)
        return cls(said, await _spooled(said))

    @property
    def _is_spooled(self) -> bool:
        return self._spool is not None and self._spool.is_whole

    def answered(self, status: int, *, is_stream: bool) -> None:
        """Record the status and the kind of the upstream's answer."""
        self._write(self.round.answered(status, is_stream=is_stream))

    def hear(self, part: bytes) -> None:
        """Record a part of the answer, unless its outcome is known."""
        if not self.outcome:
            self._write(self.round.hear(part))

    def _write(self, record: Record) -> None:
        if self._spool:
            self._spool.add(record)

    async def settle(self, incomplete: str) -> str:
        """Store the answer, or keep it on disk.

        Args:
            incomplete: why it is incomplete; blank if it is complete.

        Returns:
            The outcome.
        """
        self._write(self.round.end(incomplete))
        if not self._is_spooled:
            FAILURES.labels("spool").inc()
        try:
            is_kept = await asyncio.wait_for(in_thread(self.round.store), STORE_SECONDS)
        except Exception as error:
            await self._keep(error)
        else:
            self._discard(is_kept=is_kept)
        return self.outcome

    async def _keep(self, failure: Exception) -> None:
        if self._spool:
            await asyncio.to_thread(self._spool.sync)
        self._failure = failure
        if self._spool and self._spool.is_whole:
            self._spool.leave()
            self._spool, self.outcome = None, SPOOLED
            logger.warning("a round waits in the spool", error=type(failure).__name__)
        else:
            self.outcome = UNSTORED

    def _discard(self, *, is_kept: bool) -> None:
        if self._spool:
            self._spool.discard()
        if not is_kept:
            logger.info("a round was dropped with its session")
        self._spool, self.outcome = None, STORED if is_kept else UNSTORED

    async def insist(self) -> None:
        """Retry storing a round that could be stored nowhere. The caller has its answer already."""
        if self.outcome != UNSTORED or self._failure is None:
            return None
        for wait in RETRY_SECONDS:
            if not isinstance(self._failure, DatabaseError | TimeoutError | RuntimeError):
                break
            await asyncio.sleep(wait)
            try:
                return self._discard(is_kept=await in_thread(self.round.store))
            except Exception as error:
                self._failure = error
        FAILURES.labels("store").inc()
        logger.error("a round was not stored", error=type(self._failure).__name__, status=self.round.status)
        if self._spool:
            self._spool.leave()  # another process can store the round from the file


async def _spooled(said: Round) -> Spool | None:
    """Return the spool of a round; None if it can't be written. Sync it to disk if the message isn't committed."""
    session = said.session
    make = partial(
        Spool.create, session.user_id, session.session_id, said.first_record(), application=session.application
    )
    try:
        if said.begun:
            return make()
        file = await asyncio.to_thread(make)
    except OSError as error:
        logger.error("the spool can't be written", error=error.strerror)
        return None
    await asyncio.to_thread(file.sync)
    return file
