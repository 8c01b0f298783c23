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
    """Return the `user_id` that a request acts for; None if its key may not see the person named.

    Args:
        request: authenticated; its key decides whom it may act for.
        named: the `user_id` in the request, None when it names nobody.
        create: the person is to be made when they aren't there.
        is_needed: the call is about somebody, whom a service key has to name.

    Raises:
        ValidationError: a service key has to name somebody.
        NotFound: a user's key asked to create something for another.
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
    """Answer 404 when what a transaction writes refers to a row that was deleted meanwhile.

    Raises:
        NotFound: it does.
    """
    try:
        yield
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound from None
        raise
