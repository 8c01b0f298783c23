"""The role and the timeouts of a transaction, and other SQL that is sent in the same message as a statement.

This saves round trips. Providers return the SQL to send before a statement. `SessionsAppConfig` registers them.
Settings in the SQL are valid only until the transaction ends, so a pooler can reuse the connection for other processes.

A request has timeouts for locks, statements and idle transactions, in every role and also in autocommit mode. It also
has a deadline. No statement starts after the deadline, or runs more than `MAX_OVERRUN` seconds past it.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import ClientCursor, errors
from psycopg.pq import TransactionStatus

from sessions_app.refusals import Refusal

logger = structlog.get_logger(__name__)

# Gives all statements of a transaction the same snapshot. PostgreSQL accepts it only before the first query.
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class Provider:
    def before(self, *, starts_transaction: bool) -> str:
        """Return SQL statements that end with semicolons, or a blank string.

        `starts_transaction`: whether the next statement starts a transaction.
        """
        raise NotImplementedError

    def executed(self) -> None:
        """Called when the database has executed the SQL from `before`."""

    def failed(self, error: DatabaseError) -> None:
        """Called when a statement that was sent with the SQL of `before` failed. May raise another error instead."""


_providers: list[Provider] = []


def register(*providers: Provider) -> None:
    """Register the providers for all new connections, in the order in which their SQL is executed."""
    _providers[:] = providers
    connection_created.connect(_hook)


def _hook(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor == "postgresql" and _execute not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute)


def _execute(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    cursor = context["cursor"].cursor
    status = cursor.connection.info.transaction_status
    if status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        return execute(sql, params, many, context)  # a failed transaction accepts nothing but a rollback
    starts_transaction = status == TransactionStatus.IDLE
    added = [
        (provider, before)
        for provider in _providers
        if (before := provider.before(starts_transaction=starts_transaction))
    ]
    if not added:
        return execute(sql, params, many, context)
    before = "".join(statements for _, statements in added)
    if many or not isinstance(sql, str) or not isinstance(cursor, ClientCursor):
        # For the SELECT, which starts the transaction, this function runs again and adds `before`.
        own_message = "SELECT" if starts_transaction else before
        return _executed_after(context["connection"], own_message, lambda: execute(sql, params, many, context))
    try:
        result = execute(f"{sql}; {before}" if sql == SNAPSHOT else before + sql, params, many, context)
    except DatabaseError as error:
        for provider, _ in added:
            provider.failed(error)
        raise
    cursor.set_result(-1)  # skip to the result of the statement itself
    for provider, _ in added:
        provider.executed()
    return result


def _executed_after(own: BaseDatabaseWrapper, message: str, execute: Callable[[], Any]) -> Any:
    """Send the providers' SQL in a message of its own, because it can't be combined with the statement."""
    with transaction.atomic(using=own.alias, savepoint=False):
        with own.cursor() as cursor:
            cursor.execute(message)
        return execute()


# --- the role ---


@dataclass(frozen=True)
class Role:
    role: str

    def set_sql(self) -> str:
        """Return the SQL that sets the role for the rest of a transaction."""
        return f"SET LOCAL ROLE {self.role}; "


WEB, ADMIN = Role("memory_web"), Role("memory_admin")  # see `database_roles.py`

_role: ContextVar[Role | None] = ContextVar("role", default=None)


def current_role() -> Role | None:
    """Return the role of new transactions. None means the role of the login."""
    return _role.get()


@contextmanager
def using_role(role: Role | None) -> Iterator[None]:
    """Run the block's transactions in a role. None means the role of the login."""
    outer = _role.set(role)
    try:
        yield
    finally:
        _role.reset(outer)


class RoleProvider(Provider):
    def before(self, *, starts_transaction: bool) -> str:
        role = _role.get()
        return role.set_sql() if role and starts_transaction else ""


# --- the timeouts ---

# If a request leaves a transaction idle for this time, PostgreSQL closes the connection, which releases its locks.
IDLE_SECONDS = 60.0


class RequestKind(Enum):
    """The kind of a request, which determines how long its statements may take."""

    CALL = "call"
    LONG = "long"  # operators' pages, and calls that export, erase, delete or retract


class Deadline:
    """The time, `seconds` from now, at which a request ends with 503."""

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


class TimeoutProvider(Provider):
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
    """Round up to a tenth of a second, so that many requests send the same SQL."""
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
