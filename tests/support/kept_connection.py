"""Keeps the connection of a test for the next one, which gets it in the state of a new connection.

For a new connection, the server starts a process, which loads the catalogs. That takes longer than many tests. So the
state of the session is discarded instead of the connection.
"""

from threading import Lock
from typing import Any

import pytest
from django.db import connection
from psycopg import Connection, Error
from psycopg.pq import TransactionStatus

from memoryproject.database.base import DatabaseWrapper

# DISCARD ALL without DEALLOCATE ALL, because psycopg remembers which statements it has prepared.
_DISCARD = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD PLANS;
DISCARD TEMP; DISCARD SEQUENCES
"""


class KeptConnection:
    """Keeps at most one connection, that of the last test.

    Args:
        patch: Patches the backend to use the kept connection, until it is undone.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._new: Any = DatabaseWrapper.get_new_connection
        patch.setattr(DatabaseWrapper, "get_new_connection", lambda *asked: self._connect(*asked))
        self._taking = Lock()
        self._kept: Connection[Any] | None = None
        self._parameters: dict[str, Any] = {}

    def keep(self) -> None:
        """Take this thread's connection from Django and keep it. Close it if it is lost or in a transaction."""
        own: Any = connection
        if own.connection is None or self._kept or own.pool or not _is_emptied(own.connection):
            return
        self._kept, self._parameters = own.connection, own.get_connection_params()
        own.connection = None

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept:
            self._kept.close()
            self._kept = None

    def _connect(self, wrapper: Any, parameters: dict[str, Any]) -> Any:
        """Return the kept connection to the first caller with the same parameters, and a new one to others."""
        with self._taking:
            kept = None if wrapper.pool or parameters != self._parameters else self._kept
            if kept:
                self._kept = None
        return kept or self._new(wrapper, parameters)


def _is_emptied(left: "Connection[Any]") -> bool:
    """Return whether the session's state was discarded: settings, temporary tables, locks, cursors."""
    if not left.autocommit or left.info.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        left.execute(_DISCARD)
    except Error:
        return False
    return True
