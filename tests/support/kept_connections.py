"""Keeps closed connections for the next that open one, which get them in the state of a new connection.

For a new connection, the server starts a process, which loads the catalogs. That takes longer than many tests, and a
test opens several: a job closes its connection during a model call, and each thread has its own. So the state of the
session is discarded instead of the connection.
"""

import os
from threading import Lock
from typing import Any
from weakref import WeakSet

import pytest
from django.db import connection
from psycopg import Connection, Error
from psycopg.pq import TransactionStatus

from memoryproject.database import base

MAX_KEPT = 4
# DISCARD ALL without DEALLOCATE ALL, because psycopg remembers which statements it has prepared. In addition, the
# statistics that the session has counted are flushed.
DISCARD = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD PLANS;
DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_stat_force_next_flush()
"""


class KeptConnections:
    """Keeps connections that have the parameters of the default connection at the time of its creation.

    Args:
        patch: Patches the backend to use the kept connections, until it is undone.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._new: Any = base.DatabaseWrapper.get_new_connection
        self._end: Any = base.DatabaseWrapper._close  # type: ignore[attr-defined]
        patch.setattr(base.DatabaseWrapper, "get_new_connection", lambda *asked: self._connect(*asked))
        patch.setattr(base.DatabaseWrapper, "_close", lambda wrapper: self._close(wrapper))
        self._parameters = connection.get_connection_params()
        self._process = os.getpid()  # forked processes must not use the connections
        self._own: WeakSet[Connection[Any]] = WeakSet()
        self._taking = Lock()
        self._kept: list[Connection[Any]] = []

    def close(self) -> None:
        """Close the kept connections."""
        while self._kept:
            self._kept.pop().close()

    def _connect(self, wrapper: Any, parameters: dict[str, Any]) -> Any:
        if wrapper.pool or parameters != self._parameters or os.getpid() != self._process:
            return self._new(wrapper, parameters)
        own = self._taken() or self._new(wrapper, parameters)
        self._own.add(own)
        return own

    def _taken(self) -> "Connection[Any] | None":
        with self._taking:
            while self._kept:
                kept = self._kept.pop()
                if not base._has_pending_message(kept):
                    return kept
                kept.close()  # the server has ended it
        return None

    def _close(self, wrapper: Any) -> None:
        left = wrapper.connection
        if left in self._own and os.getpid() == self._process and len(self._kept) < MAX_KEPT and _is_emptied(left):
            self._kept.append(left)
        else:
            self._end(wrapper)


def _is_emptied(left: "Connection[Any]") -> bool:
    """Return whether the session's state was discarded: settings, temporary tables, locks, cursors."""
    if not left.autocommit or left.info.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        left.execute(DISCARD)
    except Error:
        return False
    return True
