"""Timeouts of a request: for locks, statements, idle transactions, and the whole request.

In the block of `limited`, the first message of each transaction sets its timeouts (`first_statement.py`). This applies
to transactions in any role and to single statements.

A request also has a deadline. No statement starts after the deadline, and no timeout extends beyond it, except that
timeouts are rounded up to a tenth of a second.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

import structlog
from django.conf import settings
from django.db import OperationalError
from psycopg import errors

from sessions_app.database import first_statement
from sessions_app.database.database_roles import WEB, Role, using_role
from sessions_app.refusals import Refusal

logger = structlog.get_logger(__name__)

# If a request leaves a transaction idle for this time, PostgreSQL closes the connection, which releases its locks.
IDLE_SECONDS = 60.0


class RequestKind(Enum):
    """The kind of a request, which determines how long its statements may take."""

    CALL = "call"
    LONG = "long"  # operators' pages, and calls that export, erase, delete or retract


class Deadline:
    """The time at which a request ends with 503, given in seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds
        self.statement_timeout = math.inf  # statement timeout that the current transaction has set, in seconds

    @property
    def left(self) -> float:
        """The seconds until the deadline, negative after it."""
        return self._at - time.monotonic()

    def lift(self) -> None:
        """Remove the deadline of a request that may take long, or whose response has started to stream."""
        self._at = math.inf


MAX_OVERRUN = 1.0  # maximum seconds by which a statement may exceed the deadline

_kind: ContextVar[RequestKind | None] = ContextVar("kind", default=None)
_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def using_deadline(deadline: Deadline) -> Iterator[None]:
    outer = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(outer)


def deadline() -> Deadline | None:
    return _deadline.get()


@contextmanager
def using_timeouts(kind: RequestKind) -> Iterator[None]:
    """Limit how long the block may use the database. Replaces the limits of an outer block.

    Removes the deadline of a long request.
    """
    if kind is RequestKind.LONG and (ends := deadline()):
        ends.lift()
    outer = _kind.set(kind)
    try:
        yield
    finally:
        _kind.reset(outer)


@contextmanager
def serving(kind: RequestKind, role: Role = WEB) -> Iterator[None]:
    """Run the block as a request of this kind: with its timeouts, and in `role` until the person is known."""
    with using_timeouts(kind), using_role(role):
        yield


class TimeoutProvider(first_statement.Provider):
    """Sets the limits of a transaction in its first message, and a shorter timeout near the deadline."""

    def before(self, *, starts_transaction: bool) -> str:
        """Return the statements that set the timeouts. Raise OperationalError after the request's deadline."""
        kind, ends = _kind.get(), deadline()
        if kind is None:
            return ""
        left = ends.left if ends else math.inf
        if left <= 0:
            raise OperationalError(
                "The request took too long and was stopped. Try again in a moment."
            ) from errors.QueryCanceled()
        if starts_transaction:
            limits = _limits(kind, left)
        elif ends and left < ends.statement_timeout - MAX_OVERRUN:
            limits = {"statement_timeout": _tenths(left)}
        else:
            return ""
        if ends:
            ends.statement_timeout = limits["statement_timeout"]
        return set_local(limits)


def _limits(kind: RequestKind, left: float) -> dict[str, float]:
    """Return a transaction's timeouts in seconds, keyed by PostgreSQL's names."""
    limits = settings.LIMITS
    longest = limits.request_seconds if kind is RequestKind.CALL else limits.long_statement_seconds
    return {
        "lock_timeout": limits.lock_seconds,
        "statement_timeout": _tenths(min(longest, left)),
        "idle_in_transaction_session_timeout": IDLE_SECONDS,
    }


def _tenths(seconds: float) -> float:
    """Round up to a tenth of a second, so psycopg can reuse prepared messages."""
    return math.ceil(seconds * 10) / 10


def set_local(seconds: Mapping[str, float]) -> str:
    """Return the SQL that sets a transaction's timeouts. `seconds` has PostgreSQL's names as keys."""
    return "".join(f"SET LOCAL {name} = {value * 1000:.0f}; " for name, value in seconds.items())


class Unavailable(Refusal):
    """The database could not complete the request. Nothing was changed, so the client can retry."""

    status, retry_after = 503, 1

    def __init__(self, error: OperationalError) -> None:
        self.code, text = _code_and_text(error.__cause__)
        super().__init__(text)
        # Log only the kind of the error, because its text may quote the request.
        logger.warning("the database did not carry out a request", error=type(error.__cause__ or error).__name__)


def _code_and_text(cause: BaseException | None) -> tuple[str, str]:
    if isinstance(cause, (errors.LockNotAvailable, errors.DeadlockDetected)):
        return "busy", "Another request is changing the same data. Try again in a moment."
    if isinstance(cause, errors.QueryCanceled):
        return "busy", "The request took too long and was stopped. Try again in a moment."
    return "unavailable", "The database does not respond. Try again in a moment."
