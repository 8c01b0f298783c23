"""Logins of operators: which are right, how long one lasts, its second factor, and the address of a wrong password."""

import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from axes.backends import AxesStandaloneBackend
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, OperationalError, ProgrammingError
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import SimpleTemplateResponse
from django.urls import reverse
from django.utils import timezone
from psycopg.errors import InsufficientPrivilege

from memoryproject import addresses
from sessions_app import second_factor
from sessions_app.api.errors import unavailable
from sessions_app.clock import TOLERANCE
from sessions_app.limited_operators import is_limited, operating_in
from sessions_app.limits import Unavailable
from sessions_app.models import Event, LoginLimit
from sessions_app.proven import PROVEN

ADMIN = "/admin/"
APPS = {"sessions_app", "moments_app"}
BEGAN, SEEN = "login_began", "login_seen"  # seconds since the epoch, in a session
SEEN_EVERY = 60  # seconds between two writes of a session that is worked in
OPEN = {"login", "logout"}
SET_UP, GIVE_CODE = "auth_user_second_factor", "auth_user_give_code"
# Pages of a login about itself.
OWN = {SET_UP, GIVE_CODE, "auth_user_recovery_codes", "auth_user_turn_off", "password_change"}
# The whole site's: what others than its applications have, and who works here.
SITE_MODELS = {"application", "circuit", "embeddingmodel", "loginlimit"}


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


class LoadsAtOnce(ModelBackend):
    """Loads with a login what each of its pages asks for: whether it has a second factor, and its applications."""

    def get_user(self, user_id: int) -> User | None:
        """Return the login of a session."""
        applications = LoginLimit.objects.filter(login=OuterRef("pk")).values("application")
        logins = User.objects.annotate(
            has_second_factor=Exists(second_factor.set_up().filter(user=OuterRef("pk"))),
            applications=ArraySubquery(applications),
        )
        login = logins.filter(pk=user_id).first()
        return login if login and self.user_can_authenticate(login) else None


class Passwords(LoadsAtOnce):
    """Lets in who has the password."""


class Door(AxesStandaloneBackend, LoadsAtOnce):  # type: ignore[misc]
    """Keeps out addresses that guess; and from what is the whole site's, operators of some applications.

    Rights of the site are denied to them whatever groups they are in. No other backend is asked then.
    """

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        app, _, codename = perm.partition(".")
        if is_limited(user_obj) and (app not in APPS or codename.partition("_")[2] in SITE_MODELS):
            raise PermissionDenied
        return super().has_perm(user_obj, perm, obj)

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        if is_limited(user_obj) and app_label not in APPS:
            raise PermissionDenied
        return super().has_module_perms(user_obj, app_label)


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
    """Return whether a login has expired or started in the future; if not, record its use."""
    now = time.time()
    age, rest = now - session.get(BEGAN, 0), now - session.get(SEEN, 0)
    if age < -TOLERANCE.total_seconds() or age > settings.LOGIN_HOURS * 3600 or rest > settings.LOGIN_IDLE_MINUTES * 60:
        return True
    if rest > SEEN_EVERY:
        session[SEEN] = now
    return False


def _missing(request: HttpRequest) -> str:
    """Return the name of the page that the operator must complete first; blank if none."""
    if second_factor.is_verified(request):
        return ""
    if second_factor.login_of(request).has_second_factor:  # type: ignore[attr-defined]
        return GIVE_CODE
    return SET_UP if second_factor.is_required() else ""


class LimitedOperatorMiddleware:
    """Runs the pages of operators who are limited to some applications under the role that sees these alone."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Answer in place of the view, with its template rendered: that asks the database, too."""
        match = request.resolver_match
        if match is None or match.namespace != "admin" or match.url_name in OPEN or not request.user.is_authenticated:
            return None
        login = second_factor.login_of(request)
        applications = login.applications  # type: ignore[attr-defined]
        if not applications:
            return None
        if match.url_name not in OWN:  # a login changes itself there, not the copy
            request.user = _limited(login)
        try:
            with operating_in(login.pk, applications):
                return _rendered(view(request, *args, **kwargs))
        except ProgrammingError as error:
            if isinstance(error.__cause__, InsufficientPrivilege):
                raise PermissionDenied from error  # rows of others were to be written
            raise
        except OperationalError as error:
            return unavailable(request, Unavailable(error))


def _limited(login: User) -> User:
    """Return a login as its pages see it; nobody saves this one."""
    limited = copy(login)
    limited.is_superuser = False
    limited.is_limited = True  # type: ignore[attr-defined]
    return limited


def _rendered(answer: HttpResponseBase) -> HttpResponseBase:
    return answer.render() if isinstance(answer, SimpleTemplateResponse) else answer
