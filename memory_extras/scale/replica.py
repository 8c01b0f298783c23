"""Reads from a replica: lists and reports for operators, which may be slightly outdated, and exports, which may not.

During such a read, the connection to the replica (`REPLICA_DATABASE_URL`) is Django's default connection, so roles,
row-level security and timeouts apply as usual. Writes fail. The access log is written to the primary afterward, before
the page is returned.

A replica is used if it streams from the primary and has only a short lag. For a page, it must have replayed all changes
by this operator. For reads that must be current (`from_replica_as_of_now`), it must have replayed all commits.
Otherwise, the read goes to the primary.
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

from sessions_app.database.transactions import ADMIN, current_role, using_role

ALIAS = "replica"
MAX_LAG_SECONDS = 60  # maximum lag while the replica has changes to replay
SKIP_SECONDS = 30.0  # how long a failed replica is skipped
MAX_WAIT_SECONDS = 2.0  # maximum wait for the replica to catch up
POLL_SECONDS = 0.05  # interval of checks during that wait
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
FAILED = "The replica can't be read, so this page was read from the primary."
_POSITION = "changed_to"  # session key: the primary's WAL position after the operator's last change

_IS_USABLE_SQL = """
SELECT pg_is_in_recovery() AND EXISTS (SELECT FROM pg_stat_wal_receiver),
    COALESCE(pg_last_wal_replay_lsn() >= %s::pg_lsn, true)
    AND (pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()
         OR now() - pg_last_xact_replay_timestamp() < make_interval(secs => %s))
"""

logger = structlog.get_logger(__name__)
T = TypeVar("T")
_skip_until = 0.0  # monotonic clock


def from_replica(request: HttpRequest, read: Callable[[], T]) -> T:
    """Call `read` on the replica if that is usable, otherwise on the primary. Return its result, a page or data.

    `read` must not write. It is called a second time, on the primary, if the replica fails.
    """
    if not _is_configured() or request.method not in SAFE_METHODS or connection.in_atomic_block:
        return read()
    try:
        if replica := _usable(request.session.get(_POSITION)):
            request.user.get_all_permissions()  # caches the permissions, read from the primary
            with _as_default(replica):
                page = read()
                if isinstance(page, SimpleTemplateResponse):
                    page.render()  # rendering makes queries too
                return page
    except OperationalError as error:
        _record_failure(error)
        messages.warning(request, FAILED)
    return read()


def from_replica_as_of_now(read: Callable[[], T]) -> T:
    """Call `read` on the replica once it has replayed all commits until now, otherwise on the primary.

    This is for reads that must include the latest message and must not include an erased person. `read` must not write.
    It is called a second time, on the primary, if the replica fails.
    """
    if not _is_configured() or connection.in_atomic_block:
        return read()
    try:
        if replica := _wait_until_usable(_current_position()):
            # A command runs without a role, and the replica's login alone can't see personal data.
            with _as_default(replica), using_role(current_role() or ADMIN):
                return read()
    except OperationalError as error:
        _record_failure(error)
    return read()


def _current_position() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        [end] = cursor.fetchone() or [""]
    return str(end)


def _wait_until_usable(end: str) -> BaseDatabaseWrapper | None:
    """Return the replica's connection once it has replayed the WAL up to a position. None if that takes too long."""
    until = time.monotonic() + MAX_WAIT_SECONDS
    while not (replica := _usable(end)) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return replica


def _usable(changed_to: str | None) -> BaseDatabaseWrapper | None:
    """Return the replica's connection if it has a short lag, and has replayed the WAL up to a position.

    Raises:
        OperationalError: The replica can't be reached, or is not streaming.
    """
    if time.monotonic() < _skip_until:
        raise OperationalError("It failed a moment ago.")
    replica = connections[ALIAS]
    with replica.cursor() as cursor:
        cursor.execute(_IS_USABLE_SQL, [changed_to, MAX_LAG_SECONDS])
        streams, is_new_enough = cursor.fetchone() or (False, False)
    if not streams:
        raise OperationalError("It is not streaming from the primary.")
    return replica if is_new_enough else None


@contextmanager
def _as_default(replica: BaseDatabaseWrapper) -> Iterator[None]:
    """Make the replica's connection the default connection of this thread, until the block ends."""
    own = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = replica
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = own


def _record_failure(error: OperationalError) -> None:
    global _skip_until
    if time.monotonic() >= _skip_until:
        logger.warning("replica not read", reason=str(error).strip())
        connections[ALIAS].close()
        _skip_until = time.monotonic() + SKIP_SECONDS


class ReplicaMiddleware(MiddlewareMixin):
    """Stores the primary's WAL position after an operator's change, so that the next page shows the change."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        match = request.resolver_match
        is_of_operator = match is not None and match.namespace == "admin" and request.user.is_authenticated
        if _is_configured() and request.method not in SAFE_METHODS and is_of_operator:
            request.session[_POSITION] = _current_position()
        return response


def _is_configured() -> bool:
    return bool(getattr(settings, "HAS_REPLICA", False))
