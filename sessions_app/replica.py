"""Reading from a replica what may be a moment old: the lists of the operator's pages.

Within `from_replica` the one connection that everything knows leads to the replica (`REPLICA_DATABASE_URL`), with all
that is done to statements on their way: so roles, row-level security and time limits hold there as well. What writes
fails there, and the record of who read whom is written afterwards, to the primary, before the page goes out.

A replica is read that streams what the primary writes, is hardly behind, and has all that this operator has changed.
In any other case the primary is.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from django.conf import settings
from django.contrib import messages
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse

ALIAS = "replica"
BEHIND_SECONDS = 60  # most that it may be behind while it has something to replay
AWAY_SECONDS = 30.0  # for which a replica that didn't answer isn't asked again
SAFE = ("GET", "HEAD", "OPTIONS")
AWAY = "The replica can't be read, so this list was read from the primary."
_CHANGED = "changed_to"  # in an operator's session: how far the primary's log was after their last change

_IS_FIT_SQL = """
SELECT pg_is_in_recovery() AND EXISTS (SELECT FROM pg_stat_wal_receiver),
    COALESCE(pg_last_wal_replay_lsn() >= %s::pg_lsn, true)
    AND (pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()
         OR now() - pg_last_xact_replay_timestamp() < make_interval(secs => %s))
"""

logger = structlog.get_logger(__name__)
_away_until = 0.0  # by the monotonic clock


def from_replica(request: HttpRequest, read: Callable[[], HttpResponse]) -> HttpResponse:
    """Return a page that reads nothing but rows, from the replica where there is one that is fit.

    Args:
        request: of the page.
        read: makes the page. It is called again if the replica fails meanwhile.
    """
    if not settings.HAS_REPLICA or request.method not in SAFE or connection.in_atomic_block:
        return read()
    try:
        if replica := _fit(request.session.get(_CHANGED)):
            request.user.get_all_permissions()  # what they may is known from the primary, and kept for the request
            with _leading_to(replica):
                page = read()
                # A template asks the database, too.
                return page.render() if isinstance(page, SimpleTemplateResponse) else page
    except OperationalError as error:
        _note_away(error)
        messages.warning(request, AWAY)
    return read()


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
    replica.execute_wrappers = list(own.execute_wrappers)
    connections[DEFAULT_DB_ALIAS] = replica
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = own
        replica.execute_wrappers = []


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
        if settings.HAS_REPLICA and request.method not in SAFE and is_of_operator:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
                [request.session[_CHANGED]] = cursor.fetchone() or [None]
        return answer
