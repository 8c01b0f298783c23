"""A database connection with short timeouts, for the watchdog and for crash reports.

Use it only in the main thread of a process, because the timeout is implemented with a signal.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from django.conf import settings
from django.db import DatabaseError, connection, transaction

from memoryproject.database import embedded
from sessions_app.database.transactions import set_local

RESPONSE_TIMEOUT = 5.0  # maximum seconds for a response
INTERRUPT_INTERVAL = 1.0  # interval of the interruptions, which are repeated because a rollback may hang too


class DatabaseUnavailable(Exception):
    """The database can't be used. The message is a sentence for operators."""


class _TookTooLong(BaseException):
    """The database took too long. This is a BaseException, so that `except Exception` doesn't catch it."""


@contextmanager
def statement_timeout() -> Iterator[None]:
    """Run a transaction with a statement timeout, so that the server stops abandoned statements."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(set_local({"statement_timeout": RESPONSE_TIMEOUT}))
        yield


@contextmanager
def database() -> Iterator[None]:
    """Use the database in a transaction with short timeouts. Raise `DatabaseUnavailable` if it fails or hangs."""
    with connected(), statement_timeout():
        yield


@contextmanager
def connected() -> Iterator[None]:
    """Use the connection with short timeouts. It stays open unless it failed.

    An embedded database is not started, because the timeout could interrupt the start.

    Raises:
        DatabaseUnavailable: The database returns an error, or does not respond in time.
    """
    if settings.DATABASE_IS_EMBEDDED and not embedded.running_socket(settings.EMBEDDED_DATABASE_DIR):
        raise DatabaseUnavailable("The embedded database is not running.")
    try:
        with _interrupted_when_late():
            connection.close_if_unusable_or_obsolete()
            yield
    except _TookTooLong:
        connection.close()
        raise DatabaseUnavailable(f"The database did not respond within {RESPONSE_TIMEOUT:g} s.") from None
    except DatabaseError as error:
        connection.close()
        raise DatabaseUnavailable(f"The database does not respond: {type(error).__name__}.") from error


@contextmanager
def _interrupted_when_late() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, RESPONSE_TIMEOUT, INTERRUPT_INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise _TookTooLong
