"""Logins of operators: which are right, the address that a wrong password came from, and what the log has of it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from memoryproject import addresses
from sessions_app.models import Event
from sessions_app.proven import PROVEN

ADMIN = "/admin/"


def client_address(request: HttpRequest) -> str:
    """Return the address of whoever asks."""
    return addresses.client_address(request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", ""))


class ProvenLoginMiddleware:
    """Notes which logins are right, so that their pages don't count as calls of strangers."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.path.startswith(ADMIN) and response.status_code < 500:
            with suppress(DatabaseError):  # then it stays as it was
                self._note(request, request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))
        return response

    def _note(self, request: HttpRequest, login: str) -> None:
        if login:
            (PROVEN.add if request.user.is_authenticated else PROVEN.drop)(login)


def log_lock(*, ip_address: str, **_: Any) -> None:
    """Put on record that an address was locked out, once a lock: those who go on trying must not fill the log.

    The name that was typed may be a password, and is not kept.
    """
    lock = {"type": "login_locked", "actor": f"address:{ip_address}"}
    if not Event.objects.filter(**lock, created_at__gte=timezone.now() - settings.AXES_COOLOFF_TIME).exists():
        Event.objects.create(**lock)
