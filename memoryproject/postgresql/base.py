"""The backend: a request speaks to the database in as few messages as it takes.

Each message that is waited for costs a request some tenths of a millisecond, much of it in Python. So a transaction
begins with its first statement, in one message, and a connection that answered a moment ago is taken from the pool
without being asked whether it is still there.
"""

import select
import time
from typing import Any, Self
from weakref import WeakKeyDictionary

from django.db.backends.postgresql import base
from psycopg import ClientCursor, Connection, OperationalError
from psycopg.pq import TransactionStatus

TRUSTED_SECONDS = 1.0  # for which a connection that answered is taken to be there, unless it says otherwise

_answered: WeakKeyDictionary[Connection[Any], float] = WeakKeyDictionary()


class Cursor(base.CursorMixin, ClientCursor[Any]):
    """A cursor whose first statement of a transaction has the `BEGIN` in its message."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Execute a statement, which begins the transaction where there has to be one.

        Args:
            query, params, options: as psycopg takes them.
        """
        connection = self.connection
        begins = not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
        if not (begins and isinstance(query, str)):
            return super().execute(query, params, **options)
        begin = connection._get_tx_start_command().decode()
        connection._autocommit = True  # or psycopg would send it by itself, and wait
        try:
            super().execute(f"{begin}; {query}", params, **options)
        finally:
            connection._autocommit = False
        return self.set_result(-1)  # which the statement itself returned


class DatabaseWrapper(base.DatabaseWrapper):
    """A backend with such cursors, which asks a connection of the pool only where it may be gone."""

    def get_connection_params(self) -> dict[str, Any]:
        parameters = super().get_connection_params()
        is_usual = parameters["cursor_factory"] is base.Cursor
        return parameters | ({"cursor_factory": Cursor} if is_usual else {})

    def chunked_cursor(self) -> Any:
        """Return a cursor that reads rows in chunks, within a transaction; else one that reads them at once.

        One on the server that outlives its transaction is bound to a connection that a pooler gives to somebody else.
        """
        return super().chunked_cursor() if self.in_atomic_block else self.cursor()

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        for _ in range(self.pool.max_size if self.pool else 0):
            if _is_there(connection):
                break
            self.pool.putconn(connection)  # which puts another one in its place
            connection = super().get_new_connection(conn_params)
        return connection


def _is_there(connection: Connection[Any]) -> bool:
    """Tell whether a connection is still there, and ask the server only if it may not be.

    A server that ends a connection says so, and that can be read at once. One that vanished without a word is noticed
    by asking, so whoever was not heard of for a while is asked.
    """
    was_there = time.monotonic() - _answered.get(connection, 0.0) < TRUSTED_SECONDS
    if was_there and not _has_something_to_say(connection):
        return True
    try:
        connection.execute("")
    except OperationalError:
        return False
    _answered[connection] = time.monotonic()
    return True


def _has_something_to_say(connection: Connection[Any]) -> bool:
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))
