"""Django's database backend for PostgreSQL, extended to start the embedded server and to send few messages per request.

Each round trip takes a few tenths of a millisecond, largely in Python. To save round trips, BEGIN is sent in the same
message as the first statement of a transaction, and a pooled connection that has just responded is used without a
check. The statements of each request are prepared, because PostgreSQL needs longer to plan them than to run them.
"""

import select
import time
from typing import Any, Self
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db.backends.postgresql import base, operations
from psycopg import ClientCursor, Connection, OperationalError
from psycopg import Cursor as ServerCursor
from psycopg.adapt import Dumper
from psycopg.pq import TransactionStatus

from memoryproject.database import embedded

TRUSTED_SECONDS = 1.0  # how long a connection is trusted after a response, unless the server has closed it
PREPARE_AFTER = 2  # a connection prepares a statement after this number of executions

_responded_at: WeakKeyDictionary[Connection[Any], float] = WeakKeyDictionary()


class Cursor(base.CursorMixin, ClientCursor[Any]):
    """A cursor that sends BEGIN in the same message as the first statement of a transaction."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        connection = self.connection
        begins = not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
        if not (begins and isinstance(query, str)):
            return super().execute(query, params, **options)
        begin = connection._get_tx_start_command().decode()
        connection._autocommit = True  # otherwise, psycopg would send BEGIN in a separate message
        try:
            super().execute(f"{begin}; {query}", params, **options)
        finally:
            connection._autocommit = False
        return self.set_result(-1)  # the result of the statement, not of BEGIN


class UntypedInteger(Dumper):
    """Send integers without a type. Otherwise, psycopg derives their type from their size, and prepares a statement
    once per type.
    """

    def dump(self, obj: int) -> bytes:
        return str(obj).encode()


class PreparedCursor(base.CursorMixin, ServerCursor[Any]):
    """A cursor that prepares each statement that its connection runs repeatedly.

    PostgreSQL receives the parameters separately and must be able to infer their types, so some need a cast.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection)
        self.adapters.register_dumper(int, UntypedInteger)


class DatabaseOperations(operations.DatabaseOperations):
    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> Any:
        """Return a statement with its values, for logs of queries."""
        if isinstance(cursor, PreparedCursor):
            return self.compose_sql(sql, params)
        return super().last_executed_query(cursor, sql, params)


class DatabaseWrapper(base.DatabaseWrapper):
    """The connection of a thread. Uses `Cursor`, and checks a pooled connection only if it may be dead.

    If the database's settings contain `EMBEDDED`, the embedded server is started if necessary whenever the connection
    is opened or reused. The server's socket overrides `HOST`.
    """

    ops_class = DatabaseOperations

    def get_connection_params(self) -> dict[str, Any]:
        parameters = super().get_connection_params()
        if self.settings_dict.get("EMBEDDED"):
            parameters["host"] = str(embedded.ensure_running(settings.EMBEDDED_DATABASE_DIR))
        is_default = parameters["cursor_factory"] is base.Cursor
        return parameters | ({"cursor_factory": Cursor} if is_default else {})

    def prepared_cursor(self) -> Any:
        """Return a `PreparedCursor`, or a `Cursor` if the next statement starts a transaction.

        Such a statement is sent in the same message as BEGIN, and several statements can't be prepared together. Behind
        a pooler such as pgbouncer, a `PreparedCursor` prepares nothing.
        """
        self.ensure_connection()
        if self.connection.info.transaction_status != TransactionStatus.INTRANS:
            return self.cursor()
        with self.wrap_database_errors:
            return self._prepare_cursor(PreparedCursor(self.connection))  # type: ignore[attr-defined]

    def _configure_connection(self, connection: Connection[Any]) -> bool:
        super()._configure_connection(connection)  # type: ignore[misc]
        # Behind a pooler, `connection.info` has another process id than the server's. The pooler may run each
        # transaction on another server connection, where the statements of earlier transactions are not prepared.
        [(backend_pid,)] = connection.execute("SELECT pg_backend_pid()")
        if backend_pid == connection.info.backend_pid:
            connection.prepare_threshold = PREPARE_AFTER
        return True  # tells Django to commit

    def chunked_cursor(self) -> Any:
        """Return a cursor that reads rows in chunks within a transaction, or all at once outside of one.

        Outside of a transaction, a server-side cursor depends on its connection, which a pooler may give to another
        client.
        """
        return super().chunked_cursor() if self.in_atomic_block else self.cursor()

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        for _ in range(self.pool.max_size if self.pool else 0):
            if _is_alive(connection):
                break
            self.pool.putconn(connection)  # the pool replaces it
            connection = super().get_new_connection(conn_params)
        return connection


def _is_alive(connection: Connection[Any]) -> bool:
    # If the server has closed the connection, a message from it is pending. If the server has vanished, only a query
    # detects it, so a connection without a recent response is queried.
    is_trusted = time.monotonic() - _responded_at.get(connection, 0.0) < TRUSTED_SECONDS
    if is_trusted and not _has_pending_message(connection):
        return True
    try:
        connection.execute("")
    except OperationalError:
        return False
    _responded_at[connection] = time.monotonic()
    return True


def _has_pending_message(connection: Connection[Any]) -> bool:
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))
