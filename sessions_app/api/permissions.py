"""Scopes of API keys."""

from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sessions_app.api.person import key_of

DEFAULT_SCOPES = {
    "GET": "read",
    "HEAD": "read",
    "OPTIONS": "read",
    "POST": "write",
    "PATCH": "write",
    "DELETE": "admin",
}


class HasScope(BasePermission):
    """Requires the scope in the viewset's `scopes`, or the scope of the HTTP method."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.auth is None:
            return False
        needed = self.scope_of(request, view)
        self.message = _needs(needed)
        return key_of(request).allows(needed)

    def scope_of(self, request: Request, view: Any) -> str:
        """Return the scope that the call needs."""
        scopes, method = getattr(view, "scopes", {}), request.method or ""
        return scopes.get(getattr(view, "action", method)) or DEFAULT_SCOPES.get(method, "admin")


class HasAdminScope(HasScope):
    """Requires the scope `admin` for every action."""

    def scope_of(self, request: Request, view: Any) -> str:
        return "admin"


class IsOfService(BasePermission):
    """Requires a service key, because the result concerns many people."""

    message = "This request needs a service key. The API key belongs to one user."

    def has_permission(self, request: Request, view: Any) -> bool:
        return request.auth is not None and key_of(request).user_id is None


def require_scope(request: Request, scope: str) -> None:
    """Check the scope if a call needs a higher one than its method.

    Raises:
        PermissionDenied: The key lacks the scope.
    """
    if not key_of(request).allows(scope):
        raise PermissionDenied(_needs(scope))


def _needs(scope: str) -> str:
    return f"This request needs an API key with the scope {scope}."
