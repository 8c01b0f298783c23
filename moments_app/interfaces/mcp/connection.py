"""The connection of an MCP client, which determines the person.

Over HTTP, the key and the headers determine the person; over stdio, the command's arguments do. URIs and arguments of
tools never identify a person, so a client can't access another person's memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from anyio import to_thread
from django.db import close_old_connections
from rest_framework.exceptions import NotFound, PermissionDenied

from memoryproject.serving.fair_shares import caller
from memoryproject.serving.request_limits import ThreadsOfLoops
from memoryproject.settings import CONF
from sessions_app.api.permissions import missing_rows_as_404
from sessions_app.database.transactions import RequestKind, serving
from sessions_app.models import ApiKey, UserProfile
from sessions_app.row_security import acting_for

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Connection:
    user_id: str | None  # None for an unknown person, or for one that the key may not access
    agent_id: str  # the assistant whose streams the client writes, and whose shards it searches
    actor: str  # the client's name in the event log and in jobs
    scope: str  # scope of the client's key
    application: int

    @contextmanager
    def reading(self) -> Iterator[UserProfile]:
        """Open a transaction that reads this person's rows, or raise `NotFound`."""
        with acting_for(self.user_id, application=self.application) as user:
            yield _or_not_found(user)

    @contextmanager
    def writing(self) -> Iterator[UserProfile]:
        """Open a transaction that writes this person's rows. Create the person if needed.

        Raises:
            PermissionDenied: the key's scope is insufficient.
            NotFound: the key may not see the person, or the subject was deleted in the meantime.
        """
        if not ApiKey(scope=self.scope).allows(ApiKey.Scope.WRITE):
            raise PermissionDenied("This tool needs an API key with the scope write.")
        create = self.user_id is not None
        entered = acting_for(self.user_id, application=self.application, create=create, for_write=True)
        with missing_rows_as_404(), entered as user:
            yield _or_not_found(user)


def _or_not_found(user: UserProfile | None) -> UserProfile:
    if user is None:
        raise NotFound
    return user


_threads = ThreadsOfLoops(CONF.web_threads)
CURRENT: ContextVar[Connection] = ContextVar("mcp_connection")


def database_work(work: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that runs in a thread: apply request timeouts, and release the database connection."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        close_old_connections()
        try:
            with serving(RequestKind.CALL):
                return work(*args, **kwargs)
        finally:
            close_old_connections()

    return run


async def in_mcp_thread(work: Callable[..., T], *args: Any) -> T:
    """Run work in an MCP thread. Each caller has a share of these threads, so no caller can occupy all of them.

    Raises:
        Refused: no thread became free in time.
    """
    async with _threads.current().occupy("", "", caller()):
        return await to_thread.run_sync(work, *args)
