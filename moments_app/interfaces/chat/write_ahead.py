"""Writing ahead: whatever kills the process, a round whose end the caller saw is stored, or stored at the next start.

What was said is committed before the upstream is called, or is on the disk where the database is away. What is heard
of the answer is in the spool before it is passed on. The end is passed on when the answer is committed or the spool is
on the disk; if neither works, the call goes on all the same, and the answer says so.
"""

import asyncio
from functools import partial

import structlog
from django.db import DatabaseError

from moments_app.interfaces.chat.figures import FAILURES
from moments_app.interfaces.chat.rounds import Record, Round
from moments_app.interfaces.chat.threads import in_thread
from sessions_app.transcript.spool import Spool

STORED, SPOOLED, UNSTORED = "stored", "spooled", "unstored"
STORE_SECONDS = 2.0  # for storing an answer before its end; after that it is kept on the disk
RETRY_SECONDS = (0.5, 2.0, 10.0)  # to wait before each further try of storing what couldn't be spooled either

logger = structlog.get_logger(__name__)


class WriteAhead:
    """A round that is being answered, and where it is kept.

    Args:
        heard: the round.
        file: its spool; None if that can't be written.
    """

    def __init__(self, heard: Round, file: Spool | None) -> None:
        self.round, self._spool = heard, file
        self.words = SPOOLED if self._is_spooled else UNSTORED  # what became of what was said
        if heard.begun:
            self.words = STORED
        self.outcome = ""  # what became of the answer; blank as long as it isn't settled
        self._failure: Exception | None = None

    @classmethod
    async def begin(cls, said: Round, seconds: float) -> "WriteAhead":
        """Commit what was said; spool it if that fails.

        Args:
            said: the round.
            seconds: that the database may take.
        """
        try:
            said.begun = await asyncio.wait_for(in_thread(said.begin), seconds)
        except Exception as error:
            logger.warning("what was said waits in the spool", error=type(error).__name__)
        return cls(said, await _spooled(said))

    @property
    def _is_spooled(self) -> bool:
        return self._spool is not None and self._spool.is_whole

    def answered(self, status: int, *, is_stream: bool) -> None:
        """Note how the upstream answers."""
        self._write(self.round.answered(status, is_stream=is_stream))

    def hear(self, part: bytes) -> None:
        """Note a part of the answer, unless that is settled."""
        if not self.outcome:
            self._write(self.round.hear(part))

    def _write(self, record: Record) -> None:
        if self._spool:
            self._spool.add(record)

    async def settle(self, incomplete: str) -> str:
        """Have the answer stored, or else kept on the disk.

        Args:
            incomplete: why it is not whole; blank if it is.

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
            logger.info("a round went with its session")
        self._spool, self.outcome = None, STORED if is_kept else UNSTORED

    async def insist(self) -> None:
        """Try further to store a round that could be kept nowhere; the caller has its answer."""
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
            self._spool.leave()  # for what is in it


async def _spooled(said: Round) -> Spool | None:
    """Return the spool of a round, on the disk if what was said is nowhere else; None if there can't be one."""
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
