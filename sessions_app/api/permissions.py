"""What an API key permits: the people that a request may act for, and the scope."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import IntegrityError
from psycopg.errors import ForeignKeyViolation
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sessions_app.models import ApiKey

DEFAULT_SCOPES = {
    "GET": "read",
    "HEAD": "read",
    "OPTIONS": "read",
    "POST": "write",
    "PATCH": "write",
    "DELETE": "admin",
}


def key_of(request: Request) -> ApiKey:
    assert isinstance(request.auth, ApiKey)
    return request.auth


def user_id_of(request: Request, named: str | None, *, create: bool = False, is_needed: bool = True) -> str | None:
    """Return the `user_id` that a request acts for. None if no person is named, or if the key may not act for them.

    Args:
        create: Whether the call creates a missing person.
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
def missing_rows_as_404() -> Iterator[None]:
    """Raise NotFound if a row written in the block refers to a row that was deleted in the meantime."""
    try:
        yield
    except IntegrityError as error:
        if isinstance(error.__cause__, ForeignKeyViolation):
            raise NotFound from None
        raise


class HasScope(BasePermission):
    """Requires the scope in the viewset's `scopes`, or the scope of the HTTP method."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.auth is None:
            return False
        needed = self.scope_of(request, view)
        self.message = _needs(needed)
        return key_of(request).allows(needed)

    def scope_of(self, request: Request, view: Any) -> str:
        scopes, method = getattr(view, "scopes", {}), request.method or ""
        return scopes.get(getattr(view, "action", method)) or DEFAULT_SCOPES.get(method, "admin")


class HasAdminScope(HasScope):
    def scope_of(self, request: Request, view: Any) -> str:
        return "admin"


class IsServiceKey(BasePermission):
    """Requires a service key, because the result concerns many people."""

    message = "This request needs a service key. The API key belongs to one user."

    def has_permission(self, request: Request, view: Any) -> bool:
        return request.auth is not None and key_of(request).user_id is None


def require_scope(request: Request, scope: str) -> None:
    """Raise PermissionDenied if the key lacks this scope. For actions that sometimes need a higher scope."""
    if not key_of(request).allows(scope):
        raise PermissionDenied(_needs(scope))


def _needs(scope: str) -> str:
    return f"This request needs an API key with the scope {scope}."
