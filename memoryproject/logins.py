"""Logins of operators: the address that a wrong password came from, and what the log has of it."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from sessions_app.models import Event


def client_address(request: HttpRequest) -> str:
    """Return the address of whoever asks; behind a proxy the one that the proxy saw, which nobody can make up."""
    forwarded: str = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    address: str = request.META.get("REMOTE_ADDR", "")
    return forwarded if forwarded and settings.BEHIND_PROXY else address


def log_lock(*, ip_address: str, **_: Any) -> None:
    """Put on record that an address was locked out, once a lock: those who go on trying must not fill the log.

    The name that was typed may be a password, and is not kept.
    """
    lock = {"type": "login_locked", "actor": f"address:{ip_address}"}
    if not Event.objects.filter(**lock, created_at__gte=timezone.now() - settings.AXES_COOLOFF_TIME).exists():
        Event.objects.create(**lock)
