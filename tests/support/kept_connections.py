"""Keep closed connections to the test database. The next connect gets one, in the state of a new connection.

For a new connection, the server starts a process, which loads the catalogs. That takes longer than many tests. So the
state of the session is discarded instead of the connection.
"""

import os
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from django.db import connection
from psycopg import Connection, Error
from psycopg.pq import TransactionStatus

from memoryproject.database.base import DatabaseWrapper

MOST = 4  # connections to keep; more are rarely open at the same time

_kept: list[Connection[Any]] = []
_keeping = Lock()
# DISCARD ALL without DEALLOCATE ALL, because psycopg remembers which statements it has prepared.
_DISCARD = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD PLANS;
DISCARD TEMP; DISCARD SEQUENCES
"""
_parameters: WeakKeyDictionary[Connection[Any], dict[str, Any]] = WeakKeyDictionary()  # of every open connection


def keep_connections(patch: pytest.MonkeyPatch) -> None:
    """Patch the backend to keep connections to the current database instead of closing them."""
    new, database = DatabaseWrapper.get_new_connection, connection.settings_dict["NAME"]
    close = DatabaseWrapper._close  # type: ignore[attr-defined]

    def connect(wrapper: DatabaseWrapper, parameters: dict[str, Any]) -> Any:
        made = None if wrapper.pool else _taken(parameters)
        made = made or new(wrapper, parameters)
        _parameters[made] = parameters
        return made

    def keep_or_close(wrapper: DatabaseWrapper) -> None:
        left = wrapper.connection
        is_of_test = not wrapper.pool and _parameters.get(left, {}).get("dbname") == database
        if not (is_of_test and _is_emptied(left) and _is_kept(left)):
            close(wrapper)

    patch.setattr(DatabaseWrapper, "get_new_connection", connect)
    patch.setattr(DatabaseWrapper, "_close", keep_or_close)
    os.register_at_fork(after_in_child=_kept.clear)  # the child would share them


def close_kept() -> None:
    """Close the kept connections."""
    with _keeping:
        while _kept:
            _kept.pop().close()


def _taken(parameters: dict[str, Any]) -> Any:
    """Return the kept connection with these parameters, which was closed last."""
    with _keeping:
        for one in reversed(_kept):
            if _parameters[one] == parameters:
                _kept.remove(one)
                return one
    return None


def _is_kept(left: Connection[Any]) -> bool:
    """Keep a connection unless there are enough. Return whether it is kept."""
    with _keeping:
        if is_kept := len(_kept) < MOST:
            _kept.append(left)
    return is_kept


def _is_emptied(left: Connection[Any]) -> bool:
    """Return whether the session's state was discarded: settings, temporary tables, locks, cursors."""
    if not left.autocommit or left.info.transaction_status != TransactionStatus.IDLE:
        return False
    if left._notify_handlers:  # a listener still uses it
        return False
    try:
        left.execute(_DISCARD)
    except Error:  # the connection is lost
        return False
    return True
