"""What a request sends before a statement, in the same message: it takes no round trip of its own.

Providers are asked for their SQL before each statement; `SessionsAppConfig` names them. What they set for a transaction
ends with it, so a pooler may give the connection to another process.
"""

from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import ClientCursor
from psycopg.pq import TransactionStatus

# Lets all statements of a transaction see the same moment. PostgreSQL takes it only before the first query.
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class Provider:
    """Gives SQL that goes before statements."""

    def before(self, *, begins: bool) -> str:
        """Return statements, each with its semicolon; blank for none.

        Args:
            begins: The next statement begins a transaction, or is one.
        """
        raise NotImplementedError

    def executed(self) -> None:
        """Note that the database executed what `before` returned."""

    def failed(self, error: DatabaseError) -> None:
        """Note an error of a statement that had something before it. May raise another error in its place."""


_providers: list[Provider] = []


def ask(*providers: Provider) -> None:
    """Ask these providers before each statement of connections that are opened from now on.

    Args:
        providers: In the order in which their SQL is executed.
    """
    _providers[:] = providers
    connection_created.connect(_hook)


def _hook(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor == "postgresql" and _execute not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute)


def _execute(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Execute a statement, with what goes before it."""
    cursor = context["cursor"].cursor
    status = cursor.connection.info.transaction_status
    if status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        return execute(sql, params, many, context)  # a failed transaction is rolled back
    begins = status == TransactionStatus.IDLE
    asked = [(provider, before) for provider in _providers if (before := provider.before(begins=begins))]
    if not asked:
        return execute(sql, params, many, context)
    if many or not isinstance(sql, str) or not isinstance(cursor, ClientCursor):
        return _executed_after(context["connection"], lambda: execute(sql, params, many, context))
    before = "".join(statements for _, statements in asked)
    try:
        result = execute(f"{sql}; {before}" if sql == SNAPSHOT else before + sql, params, many, context)
    except DatabaseError as error:
        for provider, _ in asked:
            provider.failed(error)
        raise
    cursor.set_result(-1)  # the statement's own
    for provider, _ in asked:
        provider.executed()
    return result


def _executed_after(own: BaseDatabaseWrapper, execute: Callable[[], Any]) -> Any:
    """Execute what can't carry other statements, after an empty one that carries them."""
    with transaction.atomic(using=own.alias, savepoint=False):
        with own.cursor() as cursor:
            cursor.execute("SELECT")
        return execute()
