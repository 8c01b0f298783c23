"""How long a request may wait for the database: for a lock, for a statement, for itself within a transaction.

Whatever statement opens a transaction in a limited block carries `SET LOCAL` of the limits before it, in the same
message. So they hold for a person's transaction, for those of the tables' owner and for single statements alike, cost
no round trip, and end with the transaction: a pooler may give the connection to a worker, who has no limits.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from enum import Enum
from typing import Any

import structlog
from django.conf import settings
from django.db import OperationalError, connection
from psycopg import ClientCursor, errors
from psycopg.pq import TransactionStatus

from sessions_app.database_roles import WEB, Role, taking
from sessions_app.refusals import Refusal

logger = structlog.get_logger(__name__)


class Kind(Enum):
    """What a request is, by how long a statement of it may rightly take."""

    CALL = "call"
    LONG = "long"  # pages of the operator, and calls that export, erase, delete or retract


_kind: ContextVar[Kind] = ContextVar("kind")


@contextmanager
def limited(kind: Kind) -> Iterator[None]:
    """Limit how long the block waits for the database; within a limited block, limit it otherwise.

    Args:
        kind: of the request.
    """
    is_limited = _with_limits in connection.execute_wrappers
    outer = _kind.set(kind)
    try:
        with nullcontext() if is_limited else connection.execute_wrapper(_with_limits):
            yield
    finally:
        _kind.reset(outer)


@contextmanager
def serving(kind: Kind, role: Role = WEB) -> Iterator[None]:
    """Serve a request in the block: limit how long it waits for the database, and what it sees of it.

    Args:
        kind: of the request.
        role: that its transactions take, as long as it doesn't say for whom it works.
    """
    with limited(kind), taking(role):
        yield


def _with_limits(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Execute a statement; one that opens a transaction begins with the limits."""
    cursor = context["cursor"].cursor
    status = cursor.connection.info.transaction_status
    # Other cursors take one statement a message. What they read in a request comes after the transaction's first.
    if many or status != TransactionStatus.IDLE or not isinstance(cursor, ClientCursor):
        return execute(sql, params, many, context)
    result = execute(_limits(_kind.get()) + sql, params, many, context)
    while cursor.nextset():  # to what the statement itself returned
        pass
    return result


def _limits(kind: Kind) -> str:
    limits = settings.LIMITS
    seconds = {
        "lock_timeout": limits.lock_seconds,
        "statement_timeout": limits.statement_seconds if kind is Kind.CALL else limits.long_statement_seconds,
        "idle_in_transaction_session_timeout": limits.idle_seconds,
    }
    return set_local(seconds)


def set_local(seconds: Mapping[str, float]) -> str:
    """Return the statements that give a transaction its own time-outs, by the names that PostgreSQL has for them."""
    return "".join(f"SET LOCAL {name} = {value * 1000:.0f}; " for name, value in seconds.items())


class Unavailable(Refusal):
    """The database did not do now what was asked; nothing was changed, and a later try may succeed.

    Args:
        error: of the database. Its kind is logged; its text may quote what was sent.
    """

    status, retry_after = 503, 1

    def __init__(self, error: OperationalError) -> None:
        self.code, text = _told(error.__cause__)
        super().__init__(text)
        logger.warning("the database did not carry out a request", error=type(error.__cause__ or error).__name__)


def _told(cause: BaseException | None) -> tuple[str, str]:
    """Return the code and the text for the kind of an error of the database."""
    if isinstance(cause, (errors.LockNotAvailable, errors.DeadlockDetected)):
        return "busy", "Somebody else is working on this; try again in a moment."
    if isinstance(cause, errors.QueryCanceled):
        return "busy", "This took too long and was ended; try again in a moment."
    return "unavailable", "The database is away; try again in a moment."
