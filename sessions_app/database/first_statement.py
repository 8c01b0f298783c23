"""Send additional SQL in the same message as a statement, to save a round trip.

Providers return the SQL before each statement. `SessionsAppConfig` registers them. Settings in the SQL are valid only
until the transaction ends, so a pooler can reuse the connection for other processes.
"""

from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import ClientCursor
from psycopg.pq import TransactionStatus

# Gives all statements of a transaction the same snapshot. PostgreSQL accepts it only before the first query.
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class Provider:
    def before(self, *, begins: bool) -> str:
        """Return SQL statements that end with semicolons, or a blank string.

        `begins`: whether the next statement starts a transaction.
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
    begins = status == TransactionStatus.IDLE
    added = [(provider, before) for provider in _providers if (before := provider.before(begins=begins))]
    if not added:
        return execute(sql, params, many, context)
    before = "".join(statements for _, statements in added)
    if many or not isinstance(sql, str) or not isinstance(cursor, ClientCursor):
        own_message = "SELECT" if begins else before  # the first statement of a transaction is sent with `before`
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
