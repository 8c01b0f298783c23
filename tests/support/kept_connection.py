"""The connection that a test leaves, which the next one takes as if it were new.

A new one is a process of the server's, which first has to learn what tables and indexes there are: that takes longer
than many a test asks of it. So what a session can be left with is thrown away in place of the session itself.
"""

from threading import Lock
from typing import Any

import pytest
from django.db import connection
from psycopg import Connection, Error
from psycopg.pq import TransactionStatus

from memoryproject.postgresql.base import DatabaseWrapper


class KeptConnection:
    """At most one, of whoever ran the last test.

    Args:
        patch: has the backend ask here for connections, until it is undone.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._new: Any = DatabaseWrapper.get_new_connection
        patch.setattr(DatabaseWrapper, "get_new_connection", lambda *asked: self._connect(*asked))
        self._taking = Lock()
        self._kept: Connection[Any] | None = None
        self._parameters: dict[str, Any] = {}

    def keep(self) -> None:
        """Take this thread's connection from Django and keep it; one amid a transaction, or that is lost, is closed."""
        own: Any = connection
        if own.connection is None or self._kept or own.pool or not _is_emptied(own.connection):
            return
        self._kept, self._parameters = own.connection, own.get_connection_params()
        own.connection = None

    def close(self) -> None:
        """Let go of it."""
        if self._kept:
            self._kept.close()
            self._kept = None

    def _connect(self, wrapper: Any, parameters: dict[str, Any]) -> Any:
        """Return the one that is kept to the first who asks for its like; to others a new one."""
        with self._taking:
            kept = None if wrapper.pool or parameters != self._parameters else self._kept
            if kept:
                self._kept = None
        return kept or self._new(wrapper, parameters)


def _is_emptied(left: "Connection[Any]") -> bool:
    """Tell whether all is gone that a session has: settings, temporary tables, locks, cursors, plans."""
    if not left.autocommit or left.info.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        left.execute("DISCARD ALL")
    except Error:
        return False
    return True
