"""Whose memory a client reads. It comes from the connection: a key over HTTP, the command's arguments over stdio.

An address or an argument never says it, so there is none that leads to somebody else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import close_old_connections
from rest_framework.exceptions import NotFound, PermissionDenied

from sessions_app.api.person import gone_is_not_found
from sessions_app.models import ApiKey, UserProfile
from sessions_app.row_security import acting_for

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Connection:
    """A client.

    Args:
        user_id: the person; None: nobody whom its key may see.
        agent_id: the assistant, whose streams are written and whose shards are searched.
        actor: how the event log and jobs name it.
        scope: of its key.
    """

    user_id: str | None
    agent_id: str
    actor: str
    scope: str

    @contextmanager
    def reading(self) -> Iterator[UserProfile]:
        """One transaction that sees this person's rows.

        Raises:
            NotFound: there is no such person.
        """
        with acting_for(self.user_id) as user:
            yield _found(user)

    @contextmanager
    def writing(self) -> Iterator[UserProfile]:
        """The same, to write; the person is made when they aren't there.

        Raises:
            PermissionDenied: the key's scope is less.
            NotFound: nobody whom its key may see; or what was written is about something deleted meanwhile.
        """
        if not ApiKey(scope=self.scope).allows(ApiKey.Scope.WRITE):
            raise PermissionDenied("This needs a key of scope write.")
        create = self.user_id is not None
        with gone_is_not_found(), acting_for(self.user_id, create=create, holding=True) as user:
            yield _found(user)


def _found(user: UserProfile | None) -> UserProfile:
    if user is None:
        raise NotFound
    return user


CURRENT: ContextVar[Connection] = ContextVar("mcp_connection")


def database_work(work: Callable[P, T]) -> Callable[P, T]:
    """For what the SDK runs in its threads: the thread's database connection goes back, as after a request."""

    @wraps(work)
    def done(*args: P.args, **kwargs: P.kwargs) -> T:
        close_old_connections()
        try:
            return work(*args, **kwargs)
        finally:
            close_old_connections()

    return done
