"""The database for those who must not wait long for it: the watch, and whoever notes that a process died.

For the main thread of a process alone, because a signal ends the wait.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from django.conf import settings
from django.db import DatabaseError, connection, transaction

from memoryproject.embedded import server
from sessions_app.limits import set_local

PATIENCE = 5.0  # seconds that the database has for an answer
AGAIN = 1.0  # seconds between interruptions: rolling back may hang too


class Away(Exception):
    """The database can't be used; the message is a sentence for an operator."""


class _TookTooLong(BaseException):
    """The time is over. No `except Exception` on the way holds it up."""


@contextmanager
def limited(seconds: float = PATIENCE) -> Iterator[None]:
    """Give each statement of a transaction a short time, or what a caller gave up would go on in the server."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(set_local({"statement_timeout": seconds}))
        yield


@contextmanager
def database(seconds: float = PATIENCE) -> Iterator[None]:
    """Use the database for a short time, in a transaction.

    Raises:
        Away: it gives an error, or no answer in time.
    """
    with connected(seconds), limited(seconds):
        yield


@contextmanager
def connected(seconds: float = PATIENCE) -> Iterator[None]:
    """Use the connection for a short time. It stays open, unless it failed.

    An embedded database is not started: whoever has work for it does that, and an impatient start would be broken off.

    Raises:
        Away: it gives an error, or no answer in time.
    """
    if settings.DATABASE_IS_EMBEDDED and not server.running_socket(settings.EMBEDDED_DATABASE_DIR):
        raise Away("The embedded database is not running.")
    try:
        with _within(seconds):
            connection.close_if_unusable_or_obsolete()
            yield
    except _TookTooLong:
        connection.close()
        raise Away(f"The database did not respond within {seconds:g} s.") from None
    except DatabaseError as error:
        connection.close()
        raise Away(f"The database does not respond: {type(error).__name__}.") from error


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise _TookTooLong
