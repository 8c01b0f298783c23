"""The person that a request is about."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError
from psycopg.errors import ForeignKeyViolation
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request

from sessions_app.api.fields import PublicIdField, StrictSerializer
from sessions_app.models import ApiKey


class PersonQuery(StrictSerializer):
    """Identifies the person. Optional with a user's key."""

    user_id = PublicIdField(required=False)


def key_of(request: Request) -> ApiKey:
    """Return the key of an authenticated request."""
    assert isinstance(request.auth, ApiKey)
    return request.auth


def user_id_of(request: Request, named: str | None, *, create: bool = False, is_needed: bool = True) -> str | None:
    """Return the `user_id` that a request acts for. None if its key may not see the named person.

    Args:
        request: An authenticated request. Its key limits the people it may act for.
        named: The `user_id` in the request, or None.
        create: Whether the call creates the person if they don't exist.
        is_needed: Whether a service key must name a person.

    Raises:
        ValidationError: A service key named no person.
        NotFound: A user's key tried to create something for another person.
    """
    key = key_of(request)
    if key.user is None and named is None and is_needed:
        raise ValidationError({"user_id": "Send a user_id. A service key must name the user."}, code="required")
    foreign = key.user is not None and named not in (None, key.user.user_id)
    if foreign and create:
        raise NotFound
    if foreign:
        return None
    return key.user.user_id if key.user else named


@contextmanager
def gone_is_not_found() -> Iterator[None]:
    """Turn a reference to a row that was deleted in the meantime into a 404.

    Raises:
        NotFound: The row was deleted.
    """
    try:
        yield
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound from None
        raise
