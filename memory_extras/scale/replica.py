"""Reading from a replica: lists and reports of the operator's pages, which may be a moment old, and exports, which not.

While it is read the one connection that everything knows leads to the replica (`REPLICA_DATABASE_URL`), with all
that is done to statements on their way: so roles, row-level security and time limits hold there as well. What writes
fails there, and the record of who read whom is written afterwards, to the primary, before the page goes out.

A replica is read that streams what the primary writes and is hardly behind. For a page it has all that this operator
has changed, for what is read as of now it has all that anybody has. In any other case the primary is read.
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
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse

from sessions_app.database_roles import ADMIN, role_taken, taking

ALIAS = "replica"
BEHIND_SECONDS = 60  # most that it may be behind while it has something to replay
AWAY_SECONDS = 30.0  # for which a replica that didn't answer isn't asked again
CATCHING_UP_SECONDS = 2.0  # for which it is waited for until it has what it has to have
LOOK_SECONDS = 0.05  # between two looks at that
SAFE = ("GET", "HEAD", "OPTIONS")
AWAY = "The replica can't be read, so this page was read from the primary."
_CHANGED = "changed_to"  # in an operator's session: how far the primary's log was after their last change

_IS_FIT_SQL = """
SELECT pg_is_in_recovery() AND EXISTS (SELECT FROM pg_stat_wal_receiver),
    COALESCE(pg_last_wal_replay_lsn() >= %s::pg_lsn, true)
    AND (pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()
         OR now() - pg_last_xact_replay_timestamp() < make_interval(secs => %s))
"""

logger = structlog.get_logger(__name__)
T = TypeVar("T")
_away_until = 0.0  # by the monotonic clock


def from_replica(request: HttpRequest, read: Callable[[], T]) -> T:
    """Return a page, or what a page shows, from the replica where there is one that is fit.

    Args:
        request: of the page.
        read: makes the page and reads nothing but rows. It is called again if the replica fails meanwhile.
    """
    if not _is_there() or request.method not in SAFE or connection.in_atomic_block:
        return read()
    try:
        if replica := _fit(request.session.get(_CHANGED)):
            request.user.get_all_permissions()  # what they may is known from the primary, and kept for the request
            with _leading_to(replica):
                page = read()
                if isinstance(page, SimpleTemplateResponse):
                    page.render()  # a template asks the database, too
                return page
    except OperationalError as error:
        _note_away(error)
        messages.warning(request, AWAY)
    return read()


def from_replica_as_of_now(read: Callable[[], T]) -> T:
    """Return what is read from a replica that has all that was committed before this call.

    It is for what must not lack the caller's last message, nor have a person who was erased before.

    Args:
        read: reads nothing but rows. It is called again if the replica fails meanwhile.
    """
    if not _is_there() or connection.in_atomic_block:
        return read()
    try:
        if replica := _caught_up(_end_of_log()):
            # A command has taken no role, and the replica's login sees nobody's rows by itself.
            with _leading_to(replica), taking(role_taken() or ADMIN):
                return read()
    except OperationalError as error:
        _note_away(error)
    return read()


def _end_of_log() -> str:
    """Return how far the primary's log is."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        [end] = cursor.fetchone() or [""]
    return str(end)


def _caught_up(end: str) -> BaseDatabaseWrapper | None:
    """Return the connection to the replica once it has the log up to there; None if that takes too long."""
    until = time.monotonic() + CATCHING_UP_SECONDS
    while not (replica := _fit(end)) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    return replica


def _fit(changed_to: str | None) -> BaseDatabaseWrapper | None:
    """Return the connection to the replica, if it has what this operator changed and is hardly behind.

    Args:
        changed_to: how far the primary's log was after their last change.

    Raises:
        OperationalError: it can't be reached, or receives nothing.
    """
    if time.monotonic() < _away_until:
        raise OperationalError("It was away a moment ago.")
    replica = connections[ALIAS]
    with replica.cursor() as cursor:
        cursor.execute(_IS_FIT_SQL, [changed_to, BEHIND_SECONDS])
        streams, is_new_enough = cursor.fetchone() or (False, False)
    if not streams:
        raise OperationalError("It receives nothing from the primary.")
    return replica if is_new_enough else None


@contextmanager
def _leading_to(replica: BaseDatabaseWrapper) -> Iterator[None]:
    """Let the one connection that everything knows lead to the replica, in this thread, until the block ends."""
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
    """Ask the replica again, whether it was away or not."""
    global _away_until
    _away_until = 0.0


class ReplicaMiddleware:
    """Notes how far the primary's log is when an operator has changed something, so that their next page shows it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.get_response(request)
        match = request.resolver_match
        is_of_operator = match is not None and match.namespace == "admin" and request.user.is_authenticated
        if _is_there() and request.method not in SAFE and is_of_operator:
            request.session[_CHANGED] = _end_of_log()
        return answer


def _is_there() -> bool:
    return bool(getattr(settings, "HAS_REPLICA", False))
