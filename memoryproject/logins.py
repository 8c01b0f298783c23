"""Logins of operators: the address that a wrong password came from, how long a login lasts, and its second factor."""

import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from sessions_app import second_factor
from sessions_app.models import Event

BEGAN, SEEN = "login_began", "login_seen"  # seconds since the epoch, in a session
SEEN_EVERY = 60  # seconds between two writes of a session that is worked in
OPEN = {"login", "logout"}
SET_UP, GIVE_CODE = "auth_user_second_factor", "auth_user_give_code"


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


def begin(request: HttpRequest, **_: Any) -> None:
    """Note in a session when the login began."""
    request.session[BEGAN] = request.session[SEEN] = time.time()


class LoginMiddleware:
    """Ends logins that lasted or rested too long, and asks for the second factor before any other page of the admin."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Answer in place of a view for which something is missing; the admin sends whoever is logged out to log in."""
        match = request.resolver_match
        if match is None or match.namespace != "admin" or match.url_name in OPEN or not request.user.is_authenticated:
            return None
        if _has_ended(request.session):
            logout(request)
            return None
        missing = _missing(request)
        if not missing or match.url_name == missing:
            return None
        return HttpResponseRedirect(reverse(f"admin:{missing}", query={"next": request.get_full_path()}))


def _has_ended(session: SessionBase) -> bool:
    """Tell whether a login is over; note that it is used if it isn't."""
    now = time.time()
    age, rest = now - session.get(BEGAN, 0), now - session.get(SEEN, 0)
    if age > settings.LOGIN_HOURS * 3600 or rest > settings.LOGIN_IDLE_MINUTES * 60:
        return True
    if rest > SEEN_EVERY:
        session[SEEN] = now
    return False


def _missing(request: HttpRequest) -> str:
    """Name the page that comes before all others; blank where nothing is missing."""
    if second_factor.is_verified(request):
        return ""
    if second_factor.has_one(second_factor.login_of(request)):
        return GIVE_CODE
    return SET_UP if second_factor.is_required() else ""
