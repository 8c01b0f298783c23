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

EVERY_SECONDS = 2.0  # between two looks while rounds are left
QUIET_SECONDS = 10.0  # otherwise
AWAY = (InterfaceError, OperationalError, RuntimeError)  # the database's, and the embedded server's
AWAY_PAUSE = 5.0  # seconds until a round is tried again for which the database was away
LONGEST_PAUSE = 300.0  # until one is that fails otherwise: it doubles
AWAY_MAX = 3  # rounds for which the database was away, after which a look ends

logger = structlog.get_logger(__name__)

_tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
# How often it failed in a row, and when it is due again: by the name of a file, or by session if the database was away.
_failures: dict[str, tuple[int, float]] = {}


def keep_replaying() -> None:
    """Have the event loop look at once and then again and again, if it doesn't do so already."""
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
    """Store what was left in the spool, but what failed just now. What failed most often comes last."""
    orphans = spool.orphans()
    for key in set(_failures) - {_file(path) for path in orphans} - {spool.session_of(path) for path in orphans}:
        _failures.pop(key, None)
    orphans.sort(key=lambda path: _failures.get(spool.session_of(path), (0, 0.0))[0])
    replay(path for path in orphans if _is_due(_file(path)) and _is_due(spool.session_of(path)))


def catch_up(session: ChatSession) -> None:
    """Store what was left in the spool of a session, or wait until another has."""
    left = spool.left_of(session.user_id, session.session_id, session.application)
    replay((path for path in left if _is_due(_file(path))), patiently=True)


def replay(paths: Iterable[Path], *, patiently: bool = False) -> None:
    """Store rounds; what fails stays where it is.

    Args:
        paths: of their files.
        patiently: wait for others who are storing one.
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
            logger.info("a round was stored from the spool" if is_kept else "a round went with its session")


def _file(path: Path) -> str:
    """Return the name of a file as it was made."""
    return path.name.removesuffix(spool.TAKEN)


def _is_due(key: str) -> bool:
    return _failures.get(key, (0, 0.0))[1] <= time.monotonic()


def _note(key: str, error: Exception, longest: float) -> None:
    count, _ = _failures.get(key, (0, 0.0))
    _failures[key] = (count + 1, time.monotonic() + min(EVERY_SECONDS * 2**count, longest))
    logger.warning("a round stays in the spool", error=type(error).__name__, tries=count + 1)
