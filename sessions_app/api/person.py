"""Whose memory a request is about."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError
from psycopg.errors import ForeignKeyViolation
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from sessions_app.models import ApiKey, UserProfile
from sessions_app.row_security import acting_for


def key_of(request: Request) -> ApiKey:
    """The key of an authenticated request."""
    assert isinstance(request.auth, ApiKey)
    return request.auth


def user_id_of(request: Request, named: str | None, *, create: bool = False) -> str | None:
    """The `user_id` a request acts for; None when its key may not see whom it names.

    Raises:
        ValidationError: a service key has to name somebody.
        NotFound: a user's key asked to create something for another.
    """
    key = key_of(request)
    if key.user is None and named is None:
        raise ValidationError({"user_id": "A service key names the person it acts for."}, code="required")
    foreign = key.user is not None and named not in (None, key.user.user_id)
    if foreign and create:
        raise NotFound
    return None if foreign else key.user.user_id if key.user else named


@contextmanager
def acting_as(request: Request, named: str | None, *, create: bool = False) -> Iterator[UserProfile | None]:
    """Opens the transaction in which a request sees one person's rows.

    Args:
        request: authenticated; its key decides whom it may act for.
        named: the `user_id` in the request, None when it names nobody.
        create: make the person when they aren't there.

    Yields:
        The person; None when there is nobody of that name, or none this key may see, which look alike.

    Raises:
        ValidationError: as `user_id_of`.
        NotFound: the same; or what was written is about something that was deleted meanwhile.
    """
    writes = request.method not in SAFE_METHODS
    user_id = user_id_of(request, named, create=create)
    with gone_is_not_found(), acting_for(user_id, create=create, holding=writes) as user:
        yield user


@contextmanager
def gone_is_not_found() -> Iterator[None]:
    """Around a transaction: what it writes may refer to a row that was there and has been deleted meanwhile.

    Raises:
        NotFound: it does.
    """
    try:
        yield
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound from None
        raise
