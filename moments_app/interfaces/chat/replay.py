"""Replay: rounds that were left in the spool are stored, by whichever web process of the host finds them first.

Each looks at its start and every few seconds. A call looks for those of its session first, so that rounds are stored in
the order in which they were said.
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

EVERY_SECONDS = 2.0
AWAY = (InterfaceError, OperationalError, RuntimeError)  # the database's, and the embedded server's
AWAY_PAUSE = 5.0  # seconds until a round is tried again for which the database was away
LONGEST_PAUSE = 300.0  # until one is that fails otherwise: it doubles
AWAY_MAX = 3  # rounds for which the database was away, after which a look ends

logger = structlog.get_logger(__name__)

_tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
_failures: dict[Path, tuple[int, float]] = {}  # how often it failed, and when it is due again


def keep_replaying() -> None:
    """Have the event loop look at once and then again and again, if it doesn't do so already."""
    loop = asyncio.get_running_loop()
    if loop not in _tasks:
        _tasks[loop] = loop.create_task(_keep_replaying())


async def _keep_replaying() -> None:
    while True:
        try:
            if spool.orphans():
                await in_thread(replay_due)
        except Exception as error:
            logger.error("the spool can't be read", error=type(error).__name__)
        await asyncio.sleep(EVERY_SECONDS)


def replay_due() -> None:
    """Store what was left in the spool, but what failed just now."""
    orphans = spool.orphans()
    for path in set(_failures) - set(orphans):
        _failures.pop(path, None)
    now = time.monotonic()
    replay(path for path in orphans if _failures.get(path, (0, 0.0))[1] <= now)


def catch_up(session: ChatSession) -> None:
    """Store what was left in the spool of a session."""
    replay(spool.orphans(session.user_id, session.session_id))


def replay(paths: Iterable[Path]) -> None:
    """Store rounds; what fails stays where it is."""
    away = 0
    for path in paths:
        try:
            _replay_one(path)
        except AWAY as error:
            away += 1
            _note(path, error, AWAY_PAUSE)
        except Exception as error:
            _note(path, error, LONGEST_PAUSE)
        if away == AWAY_MAX:
            return


def _replay_one(path: Path) -> None:
    with spool.claimed(path) as records:
        if records:
            is_kept = Round.from_records(records).store()
            logger.info("a round was stored from the spool" if is_kept else "a round went with its session")


def _note(path: Path, error: Exception, longest: float) -> None:
    count, _ = _failures.get(path, (0, 0.0))
    _failures[path] = (count + 1, time.monotonic() + min(EVERY_SECONDS * 2**count, longest))
    logger.warning("a round stays in the spool", error=type(error).__name__, tries=count + 1)
