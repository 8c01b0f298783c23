"""Logins of operators: their duration, second factor, cache of verified sessions, and lockout by IP address.

Operators get their permissions from three groups. `migrate` synchronizes these groups with the table in this module. A
migration can't do that, because Django creates permissions after the last migration, and new models add permissions.
Operators can create other groups.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from axes.backends import AxesStandaloneBackend
from django.apps import apps
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, OperationalError, ProgrammingError
from django.db.models import Exists, OuterRef, Q
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import SimpleTemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin
from psycopg.errors import InsufficientPrivilege

from memoryproject.serving import anonymous_throttle
from sessions_app.api.error_pages import unavailable
from sessions_app.clock import TOLERANCE
from sessions_app.database.transactions import Unavailable
from sessions_app.limited_operators import acting_as_limited_operator, is_limited
from sessions_app.models import Event, LoginLimit
from sessions_app.people.provenance import declared
from sessions_app.process_cache import VERIFIED
from sessions_app.security import second_factor

ADMIN = "/admin/"
APPS = {"sessions_app", "moments_app"}
STARTED_AT, LAST_SEEN_AT = "login_began", "login_seen"  # session keys, with times in seconds since the epoch
UPDATE_SECONDS = 60  # seconds between two updates of the time at which a session was last used
OPEN = {"login", "logout"}
SET_UP, GIVE_CODE = "auth_user_second_factor", "auth_user_give_code"
# Pages on which operators manage their own login.
OWN_LOGIN_PAGES = {SET_UP, GIVE_CODE, "auth_user_recovery_codes", "auth_user_turn_off", "password_change"}
# Tables about the whole site or the staff, not about single applications.
SITE_MODELS = {"application", "circuit", "embeddingmodel", "loginlimit"}


def client_address(request: HttpRequest) -> str:
    forwarded = request.headers.get("X-Forwarded-For", "")
    return anonymous_throttle.client_address(request.META.get("REMOTE_ADDR", ""), forwarded)


class VerifiedLoginMiddleware(MiddlewareMixin):
    """Records verified logins, so the anonymous rate limit doesn't apply to them."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path.startswith(ADMIN) and response.status_code < 500:
            with suppress(DatabaseError):  # if the database fails, the page works without the record
                self._record(request, request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))
        return response

    def _record(self, request: HttpRequest, login: str) -> None:
        if login:
            (VERIFIED.add if request.user.is_authenticated else VERIFIED.drop)(login)


def log_lockout(*, ip_address: str, **_: Any) -> None:
    """Log a lockout of an IP address, once. The typed username may be a password, so it is not stored."""
    lock = {"type": "login_locked", "actor": f"address:{ip_address}"}
    if not Event.objects.filter(**lock, created_at__gte=timezone.now() - settings.AXES_COOLOFF_TIME).exists():
        Event.objects.create(**lock)


class LoginBackend(ModelBackend):
    """Loads a login together with data that every page needs: whether it has a second factor, and its applications."""

    def get_user(self, user_id: int) -> User | None:
        applications = LoginLimit.objects.filter(login=OuterRef("pk")).values("application")
        logins = User.objects.annotate(
            has_second_factor=Exists(second_factor.confirmed_devices().filter(user=OuterRef("pk"))),
            applications=ArraySubquery(applications),
        )
        login = logins.filter(pk=user_id).first()
        return login if login and self.user_can_authenticate(login) else None


class Passwords(LoginBackend):
    """Authenticates with a password."""


class LockoutBackend(AxesStandaloneBackend, LoginBackend):  # type: ignore[misc]
    """Blocks IP addresses that guess passwords. Denies site-wide permissions to operators of some applications.

    This is the first backend, so its denial takes precedence over the permissions of an operator's groups.
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


def record_login_time(request: HttpRequest, **_: Any) -> None:
    request.session[STARTED_AT] = request.session[LAST_SEEN_AT] = time.time()


class LoginMiddleware(MiddlewareMixin):
    """Ends old or idle logins, and asks for the second factor before any other page of the admin."""

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Redirect to the page that is required first. The admin redirects logged-out visitors to the login page."""
        match = request.resolver_match
        if match is None or match.namespace != "admin" or match.url_name in OPEN or not request.user.is_authenticated:
            return None
        if _has_expired(request.session):
            logout(request)
            return None
        missing = _required_page(request)
        if not missing or match.url_name == missing:
            return None
        return HttpResponseRedirect(reverse(f"admin:{missing}", query={"next": request.get_full_path()}))


def _has_expired(session: SessionBase) -> bool:
    """Return whether a login has expired or started in the future; if not, record its use."""
    now = time.time()
    age, rest = now - session.get(STARTED_AT, 0), now - session.get(LAST_SEEN_AT, 0)
    if age < -TOLERANCE.total_seconds() or age > settings.LOGIN_HOURS * 3600 or rest > settings.LOGIN_IDLE_MINUTES * 60:
        return True
    if rest > UPDATE_SECONDS:
        session[LAST_SEEN_AT] = now
    return False


def _required_page(request: HttpRequest) -> str:
    """Return the name of the page that the operator must complete first, or a blank string."""
    if second_factor.is_verified(request):
        return ""
    if second_factor.login_of(request).has_second_factor:  # type: ignore[attr-defined]
        return GIVE_CODE
    return SET_UP if second_factor.is_required() else ""


class LimitedOperatorMiddleware(MiddlewareMixin):
    """Runs pages under a limited database role for operators who are limited to some applications."""

    def process_view(self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the view's response with its template rendered, because rendering makes queries too."""
        match = request.resolver_match
        if match is None or match.namespace != "admin" or match.url_name in OPEN or not request.user.is_authenticated:
            return None
        login = second_factor.login_of(request)
        applications = login.applications  # type: ignore[attr-defined]
        if not applications:
            return None
        login.is_limited = True  # type: ignore[attr-defined]
        if match.url_name not in OWN_LOGIN_PAGES:  # these pages change the login itself, so they don't get the copy
            request.user = _without_superuser_status(login)
        try:
            with acting_as_limited_operator(login.pk, applications):
                return _rendered(view(request, *args, **kwargs))
        except ProgrammingError as error:
            if isinstance(error.__cause__, InsufficientPrivilege):
                raise PermissionDenied from error  # the page tried to write rows of other applications
            raise
        except OperationalError as error:
            return unavailable(request, Unavailable(error))


def _without_superuser_status(login: User) -> User:
    """Return a copy of the login that is not a superuser. Never save the copy."""
    limited = copy(login)
    limited.is_superuser = False
    return limited


def _rendered(answer: HttpResponseBase) -> HttpResponseBase:
    return answer.render() if isinstance(answer, SimpleTemplateResponse) else answer


# Only administrators may see webhooks: the site sends requests to their URLs, and a URL may contain a secret.
WEBHOOKS = Q(content_type__app_label="moments_app", content_type__model__in=["webhookendpoint", "webhookdelivery"])
KEYS = Q(content_type__app_label="sessions_app", content_type__model="apikey")
# Permissions for contexts, the recall console and prompt trials, which show much data about one person. Exports require
# another permission.
READ = Q(content_type__app_label="sessions_app", codename__in=["read_userprofile", "preview_context"])
# Changes to the transcript, except deletions.
TRANSCRIPT = Q(content_type__app_label="sessions_app", codename__in=["change_session", "change_userprofile"])


def memory_apps() -> set[str]:
    """Return the apps that have tables with rows written by processes.

    Viewers can see all tables of these apps, and editors can change them.
    """
    return {table.model._meta.app_label for table in declared() if table.processes}


def groups() -> dict[str, Q]:
    memory = Q(content_type__app_label__in=memory_apps())
    shown = memory | Q(content_type__app_label__in=["sessions_app", "django_q"])
    # Keys and webhooks are excluded. Tables with logins, and those of Django or other packages, are in other apps.
    view = shown & Q(codename__startswith="view_") & ~KEYS & ~WEBHOOKS
    edit = (memory & ~WEBHOOKS) | TRANSCRIPT
    return {"viewers": view, "editors": view | READ | edit, "administrators": Q()}


def register_groups(**_: Any) -> None:
    """Synchronize the groups with the table.

    Create missing permissions first, because `migrate` may not have created them yet.
    """
    from django.contrib.auth.models import Group, Permission

    for app in apps.get_app_configs():
        create_permissions(app, verbosity=0)
    for name, rights in groups().items():
        group, _created = Group.objects.get_or_create(name=name)
        group.permissions.set(Permission.objects.filter(rights))
