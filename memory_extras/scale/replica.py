"""Reads from a replica: lists and reports on operators' pages, which may be outdated, and exports, which may not.

During such a read, Django's default connection is that of the replica (`REPLICA_DATABASE_URL`), with all hooks on
statements. So roles, row-level security and timeouts apply there too. Writes fail there. The access log is written to
the primary afterward, before the page is returned.

A replica is used if it streams from the primary and has only a short lag. For a page, it must have all changes of this
operator. For a read as of now, it must have all commits. Otherwise the primary is read.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import structlog
from django.conf import settings
from django.contrib import messages
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.utils.deprecation import MiddlewareMixin

from sessions_app.database.database_roles import ADMIN, current_role, taking

ALIAS = "replica"
BEHIND_SECONDS = 60  # maximum lag while the replica has changes to replay
AWAY_SECONDS = 30.0  # how long a failed replica is skipped
CATCHING_UP_SECONDS = 2.0  # maximum wait for the replica to catch up
LOOK_SECONDS = 0.05  # interval of checks during that wait
SAFE = ("GET", "HEAD", "OPTIONS")
AWAY = "The replica can't be read, so this page was read from the primary."
_CHANGED = "changed_to"  # session key: the primary's WAL position after the operator's last change

_IS_FIT_SQL = """
SELECT pg_is_in_recovery() AND EXISTS (SELECT FROM pg_stat_wal_receiver),
    COALESCE(pg_last_wal_replay_lsn() >= %s::pg_lsn, true)
    AND (pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()
         OR now() - pg_last_xact_replay_timestamp() < make_interval(secs => %s))
"""

logger = structlog.get_logger(__name__)
T = TypeVar("T")
_away_until = 0.0  # monotonic clock


def from_replica(request: HttpRequest, read: Callable[[], T]) -> T:
    """Return a page, or its data, from the replica if it is usable. `read` only reads, and may be called twice."""
    if not _is_there() or request.method not in SAFE or connection.in_atomic_block:
        return read()
    try:
        if replica := _fit(request.session.get(_CHANGED)):
            request.user.get_all_permissions()  # cached from the primary
            with _leading_to(replica):
                page = read()
                if isinstance(page, SimpleTemplateResponse):
                    page.render()  # rendering makes queries too
                return page
    except OperationalError as error:
        _note_away(error)
        messages.warning(request, AWAY)
    return read()


def from_replica_as_of_now(read: Callable[[], T]) -> T:
    """Return the result of `read` from a replica that has everything committed before this call.

    For reads that must include the latest message, and no erased person. `read` only reads, and may be called twice.
    """
    if not _is_there() or connection.in_atomic_block:
        return read()
    try:
        if replica := _caught_up(_end_of_log()):
            # A command has not taken a role, and the replica's login alone sees no personal data.
            with _leading_to(replica), taking(current_role() or ADMIN):
                return read()
    except OperationalError as error:
        _note_away(error)
    return read()


def _end_of_log() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        [end] = cursor.fetchone() or [""]
    return str(end)


def _caught_up(end: str) -> BaseDatabaseWrapper | None:
    """Return the replica's connection once it has replayed the WAL up to a position. None if that takes too long."""
    until = time.monotonic() + CATCHING_UP_SECONDS
    while not (replica := _fit(end)) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    return replica


def _fit(changed_to: str | None) -> BaseDatabaseWrapper | None:
    """Return the replica's connection if it has this operator's changes (up to a WAL position) and a short lag.

    Raises:
        OperationalError: The replica can't be reached, or is not streaming.
    """
    if time.monotonic() < _away_until:
        raise OperationalError("It failed a moment ago.")
    replica = connections[ALIAS]
    with replica.cursor() as cursor:
        cursor.execute(_IS_FIT_SQL, [changed_to, BEHIND_SECONDS])
        streams, is_new_enough = cursor.fetchone() or (False, False)
    if not streams:
        raise OperationalError("It is not streaming from the primary.")
    return replica if is_new_enough else None


@contextmanager
def _leading_to(replica: BaseDatabaseWrapper) -> Iterator[None]:
    """Make the replica's connection the default connection of this thread, until the block ends."""
    own = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = replica
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = own


def _note_away(error: OperationalError) -> None:
    global _away_until
    if time.monotonic() >= _away_until:
        logger.warning("replica not read", reason=str(error).strip())
        connections[ALIAS].close()
        _away_until = time.monotonic() + AWAY_SECONDS


def forget_away() -> None:
    """Clear the record of a failed replica, so that it is used again."""
    global _away_until
    _away_until = 0.0


class ReplicaMiddleware(MiddlewareMixin):
    """Stores the primary's WAL position after an operator's change, so that the next page shows the change."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        match = request.resolver_match
        is_of_operator = match is not None and match.namespace == "admin" and request.user.is_authenticated
        if _is_there() and request.method not in SAFE and is_of_operator:
            request.session[_CHANGED] = _end_of_log()
        return response


def _is_there() -> bool:
    return bool(getattr(settings, "HAS_REPLICA", False))
