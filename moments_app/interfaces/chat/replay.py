"""Replay: store rounds that were left in the spool, in the first web process of the host that finds them.

Each process checks at its start and every few seconds. A call first checks for rounds of its session, so that rounds
are stored in order.
"""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakKeyDictionary

import structlog
from django.db import InterfaceError, OperationalError

from moments_app.interfaces.chat.headers import ChatSession
from moments_app.interfaces.chat.rounds import Round
from moments_app.interfaces.chat.threads import in_thread
from sessions_app.transcript import spool

EVERY_SECONDS = 2.0  # between two checks while rounds are left
QUIET_SECONDS = 10.0  # between two checks otherwise
AWAY = (InterfaceError, OperationalError, RuntimeError)  # errors while the database or the embedded server is down
AWAY_PAUSE = 5.0  # seconds until a round is retried after the database was down
LONGEST_PAUSE = 300.0  # maximum seconds until a round is retried that fails for other reasons; they double each time
AWAY_MAX = 3  # a check ends after this many rounds fail because the database is down

logger = structlog.get_logger(__name__)

_tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
# The number of consecutive failures, and the time of the next try: by file name, or by session if the database was
# down.
_failures: dict[str, tuple[int, float]] = {}


def keep_replaying() -> None:
    """Make the event loop check the spool at once and at intervals, unless it already does."""
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
    """Store the rounds in the spool, except recently failed ones. Rounds with the most failures come last."""
    orphans = spool.orphans()
    for key in set(_failures) - {_file(path) for path in orphans} - {spool.session_of(path) for path in orphans}:
        _failures.pop(key, None)
    orphans.sort(key=lambda path: _failures.get(spool.session_of(path), (0, 0.0))[0])
    replay(path for path in orphans if _is_due(_file(path)) and _is_due(spool.session_of(path)))


def catch_up(session: ChatSession) -> None:
    """Store the rounds in the spool of a session, or wait until another process has."""
    left = spool.left_of(session.user_id, session.session_id, session.application)
    replay((path for path in left if _is_due(_file(path))), patiently=True)


def replay(paths: Iterable[Path], *, patiently: bool = False) -> None:
    """Store rounds. Files of rounds that fail are kept.

    Args:
        patiently: wait for other processes that are storing one.
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
    """Return the original name of a file."""
    return path.name.removesuffix(spool.TAKEN)


def _is_due(key: str) -> bool:
    return _failures.get(key, (0, 0.0))[1] <= time.monotonic()


def _note(key: str, error: Exception, longest: float) -> None:
    count, _ = _failures.get(key, (0, 0.0))
    _failures[key] = (count + 1, time.monotonic() + min(EVERY_SECONDS * 2**count, longest))
    logger.warning("a round stays in the spool", error=type(error).__name__, tries=count + 1)
