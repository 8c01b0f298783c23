"""Preserve rounds when a process is killed or the database is down.

The message is committed before the upstream is called. While the database is down, it is spooled to disk instead. Each
part of the answer is spooled before it is passed on. The end of the answer is passed on once the answer is committed or
the spool is synced to disk. So if the caller received the end of an answer, the round is stored, or will be at the next
start. If both the commit and the spool fail, the call still continues, and the response reports it.

Rounds that were left in the spool are *replayed*: the first web process of the host that finds them stores them. Each
process checks the spool when it starts and every few seconds. Each call first replays the rounds of its session, so
rounds are stored in order.
"""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError

from moments_app.interfaces.chat.errors import FAILURES
from moments_app.interfaces.chat.request import ChatSession
from moments_app.interfaces.chat.rounds import Record, Round
from moments_app.interfaces.chat.threads import in_thread
from sessions_app.transcript import spool
from sessions_app.transcript.spool import Spool

STORED, SPOOLED, UNSTORED = "stored", "spooled", "unstored"
STORE_SECONDS = 2.0  # maximum wait for storing an answer; after that, the round stays in the spool
RETRY_SECONDS = (0.5, 2.0, 10.0)  # waits before each retry to store a round that could not be spooled

EVERY_SECONDS = 2.0  # seconds between checks of a spool with rounds
QUIET_SECONDS = 10.0  # seconds between checks of an empty spool
AWAY = (InterfaceError, OperationalError, RuntimeError)  # errors while the database or the embedded server is down
AWAY_PAUSE = 5.0  # maximum seconds between two replays of a session's rounds if the database is down
LONGEST_PAUSE = 300.0  # maximum seconds between two replays of a round that fails for other reasons
AWAY_MAX = 3  # maximum database failures before a check of the spool ends

logger = structlog.get_logger(__name__)

_tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
# The number of consecutive failures and the time of the next attempt, keyed by file, or by session if the database was
# down.
_failures: dict[str, tuple[int, float]] = {}


class WriteAhead:
    """A round in progress, and its file in the spool.

    Args:
        file: the file in the spool; None if it can't be written.
    """

    def __init__(self, heard: Round, file: Spool | None) -> None:
        self.round, self._spool = heard, file
        self.words = SPOOLED if self._is_spooled else UNSTORED  # where the message is, for a response header
        if heard.begun:
            self.words = STORED
        self.outcome = ""  # `STORED`, `SPOOLED` or `UNSTORED`; blank until `settle`
        self._failure: Exception | None = None

    @classmethod
    async def begin(cls, said: Round, seconds: float) -> "WriteAhead":
        """Commit the message. If that fails, spool it.

        Args:
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
        self._write(self.round.answered(status, is_stream=is_stream))

    def hear(self, part: bytes) -> None:
        """Record a part of the answer, unless its outcome is already known."""
        if not self.outcome:
            self._write(self.round.hear(part))

    def _write(self, record: Record) -> None:
        if self._spool:
            self._spool.add(record)

    async def settle(self, incomplete: str) -> str:
        """Store the answer in the transcript. If that fails, leave the round in the spool.

        Args:
            incomplete: why the answer is incomplete; blank if it is complete.

        Returns:
            The outcome: `STORED`, `SPOOLED` or `UNSTORED`.
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
            self._spool.release()
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
        """Retry if the round is neither stored nor spooled. The caller already has the answer."""
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
            self._spool.release()  # another process can store the round from the file


async def _spooled(said: Round) -> Spool | None:
    """Create the file of a round in the spool. Return None if it can't be written.

    If the message isn't committed, sync the file to disk.
    """
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


# --- replay ---


def keep_replaying() -> None:
    """Start the task that replays rounds in this event loop, unless it is running."""
    loop = asyncio.get_running_loop()
    if loop not in _tasks:
        _tasks[loop] = loop.create_task(_keep_replaying())


async def _keep_replaying() -> None:
    while True:
        pause = QUIET_SECONDS
        try:
            if spool.orphans():
                pause = EVERY_SECONDS
                await in_thread(replay_due)
        except Exception as error:
            logger.error("the spool can't be read", error=type(error).__name__)
        await asyncio.sleep(pause)


def replay_due() -> None:
    """Replay the rounds in the spool, except recently failed ones. Rounds with the most failures come last."""
    orphans = spool.orphans()
    for key in set(_failures) - {_file(path) for path in orphans} - {spool.session_of(path) for path in orphans}:
        _failures.pop(key, None)
    orphans.sort(key=lambda path: _failures.get(spool.session_of(path), (0, 0.0))[0])
    replay(path for path in orphans if _is_due(_file(path)) and _is_due(spool.session_of(path)))


def catch_up(session: ChatSession) -> None:
    """Replay the rounds of a session. If another process is storing one, wait for it."""
    left = spool.unstored_files(session.user_id, session.session_id, session.application)
    replay((path for path in left if _is_due(_file(path))), patiently=True)


def replay(paths: Iterable[Path], *, patiently: bool = False) -> None:
    """Store rounds from the spool. A round that fails stays there.

    Args:
        paths: the files of the rounds.
        patiently: whether to wait if another process is storing the same round.
    """
    away = 0
    for path in paths:
        try:
            _replay_one(path, patiently)
        except AWAY as error:
            away += 1
            _note(spool.session_of(path), error, AWAY_PAUSE)
        except Exception as error:
            _note(_file(path), error, LONGEST_PAUSE)
        if away == AWAY_MAX:
            return


def _replay_one(path: Path, patiently: bool) -> None:
    with spool.claimed(path, patiently=patiently) as records:
        if records:
            is_kept = Round.from_records(records).store()
            logger.info("a round was stored from the spool" if is_kept else "a round was dropped with its session")


def _file(path: Path) -> str:
    """Return the name that the file had before a process claimed it."""
    return path.name.removesuffix(spool.CLAIMED)


def _is_due(key: str) -> bool:
    return _failures.get(key, (0, 0.0))[1] <= time.monotonic()


def _note(key: str, error: Exception, longest: float) -> None:
    count, _ = _failures.get(key, (0, 0.0))
    _failures[key] = (count + 1, time.monotonic() + min(EVERY_SECONDS * 2**count, longest))
    logger.warning("a round stays in the spool", error=type(error).__name__, tries=count + 1)
