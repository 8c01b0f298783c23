"""Access to the API with `Authorization: Bearer <key or token>`: authentication, what a key permits, and its limits.

A cache of recently verified API keys saves a round trip to the database per request. A cached key is checked again in
the same database message as the request's first statement. If the key is no longer valid, the message fails before its
other statements run, and the client gets the error for a wrong key. So revoking a key takes effect immediately in all
processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from django.conf import settings
from django.core.cache.backends.base import BaseCache
from django.db import DatabaseError, IntegrityError, connection
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from psycopg import errors, sql
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, NotFound, PermissionDenied, ValidationError
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from sessions_app.database import transactions
from sessions_app.models import ApiKey, DailyLimit
from sessions_app.models.daily_limit import CACHE_SECONDS, current_call
from sessions_app.process_cache import VERIFIED, ProcessCache, hash_of

MAX_KEYS = 10_000  # maximum keys that a process caches, and whose recent calls it knows
NOT_VALID = "The API key is not valid. It may be expired or revoked."

# The check doesn't compare scopes, because a key's scopes can't be changed. If the key is no longer valid, the division
# by zero aborts the message before its other statements run.
_KEY_CHECK_SQL = """
SELECT 1 / count(*) FROM sessions_app_apikey
WHERE prefix = {} AND secret_hash = {} AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());
"""


class _CachedKey(NamedTuple):
    key: ApiKey
    check_sql: str


class _UncheckedKey(NamedTuple):
    text: str
    check_sql: str


# Keyed by a hash of the key's text. The cached key also records whether custom limits exist, so an entry expires
# together with the cached limits.
CACHED_KEYS: ProcessCache[bytes, _CachedKey] = ProcessCache(MAX_KEYS, seconds=CACHE_SECONDS)
# Whether this request checks its cached key with its first message.
_defers_check: ContextVar[bool] = ContextVar("defers_check", default=False)
# The cached key that this request has not checked yet.
_unchecked_key: ContextVar[_UncheckedKey | None] = ContextVar("unchecked_key", default=None)


def key_with(text: str) -> ApiKey | None:
    """Return the valid key with this text, or None.

    Within `check_key_later`, a cached key is accepted now and checked later.
    """
    key_hash = hash_of(text)
    known = CACHED_KEYS.get(key_hash)
    if known and known.key.is_valid() and _defers_check.get():
        _unchecked_key.set(_UncheckedKey(text, known.check_sql))
        return known.key
    CACHED_KEYS.drop(key_hash)
    _unchecked_key.set(None)
    if key := ApiKey.objects.verify(text):
        check_sql = sql.SQL(_KEY_CHECK_SQL).format(key.prefix, key.secret_hash).as_string()
        CACHED_KEYS.put(key_hash, _CachedKey(key, check_sql))
    return key


@receiver([post_save, post_delete], sender=DailyLimit)
def clear_cached_keys(**_: Any) -> None:
    """Clear the cache, because custom limits may have been added or removed."""
    CACHED_KEYS.clear()


@contextmanager
def check_key_later() -> Iterator[None]:
    """Confirm the key of a request with the first database message of the block."""
    is_nested, outer = _defers_check.set(True), _unchecked_key.set(None)
    try:
        yield
    finally:
        _unchecked_key.reset(outer)
        _defers_check.reset(is_nested)


def check_key_now() -> None:
    """Confirm this request's key if that hasn't happened yet. Raise AuthenticationFailed if it is no longer valid."""
    if _unchecked_key.get():
        with connection.cursor() as cursor:
            cursor.execute("SELECT")


class KeyCheckProvider(transactions.Provider):
    """Confirms a request's key with its first database message."""

    def before(self, *, starts_transaction: bool) -> str:
        unchecked = _unchecked_key.get()
        return unchecked.check_sql if unchecked else ""

    def executed(self) -> None:
        _unchecked_key.set(None)

    def failed(self, error: DatabaseError) -> None:
        """Raise AuthenticationFailed if the key is no longer valid."""
        unchecked = _unchecked_key.get()
        if unchecked and isinstance(error.__cause__, errors.DivisionByZero):
            _unchecked_key.set(None)
            VERIFIED.drop(unchecked.text)
            raise AuthenticationFailed(NOT_VALID) from None


class Issuer(Protocol):
    """An issuer of tokens that represent API keys."""

    prefix: str

    def key_with(self, text: str, path: str) -> ApiKey | None:
        """Return the key that a token represents at a path, or None if the token isn't valid.

        `granted` of the key contains the token's scopes.
        """

    def challenge(self, path: str) -> str:
        """Return the `WWW-Authenticate` header for a 401 at this path. Blank for the default."""


ISSUERS: list[Issuer] = []  # optional packages add issuers


def issuer_of(text: str) -> Issuer | None:
    return next((issuer for issuer in ISSUERS if text.startswith(issuer.prefix)), None)


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey. Wrong, expired and revoked keys get the same error."""

    def authenticate(self, request: Request) -> tuple[ApiKey, ApiKey] | None:
        """Return the key as the user and as the credentials. None if the request has no `Authorization` header."""
        kind, _, sent = get_authorization_header(request).partition(b" ")
        if not kind:
            return None
        text = sent.decode("ascii", "replace").strip() if kind.lower() == b"bearer" else ""
        issuer = issuer_of(text)
        key = issuer.key_with(text, request.path) if issuer else key_with(text)
        if key is None:
            raise AuthenticationFailed(NOT_VALID)
        key.touch()
        return key, key

    def authenticate_header(self, request: Request) -> str:
        """Return the value of `WWW-Authenticate`. It makes DRF respond with 401 instead of 403 if there is no key."""
        return next((challenge for issuer in ISSUERS if (challenge := issuer.challenge(request.path))), "Bearer")


# --- what a key permits: the scope, and the people that a request may act for ---

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
        if isinstance(error.__cause__, errors.ForeignKeyViolation):
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


# --- the rate limit and the daily limits of keys ---


class _RecentCalls(BaseCache):
    """Stores the times of keys' recent calls for DRF's throttle. Django's own cache would pickle them."""

    def __init__(self) -> None:
        super().__init__({})
        self._calls: ProcessCache[Any, Any] = ProcessCache(MAX_KEYS)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        calls = self._calls.get(key)
        return default if calls is None else calls

    def set(self, key: Any, value: Any, timeout: Any = None, version: int | None = None) -> None:
        self._calls.put(key, value)


class KeyRateThrottle(SimpleRateThrottle):
    """Allows `API_RATE` requests per second and key in each web process."""

    cache = _RecentCalls()

    def get_rate(self) -> str:
        return f"{settings.API_RATE}/s"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """Return the cache key for the API key's calls. None if the request has no API key, so it is not throttled."""
        return f"throttle:{request.auth.pk}" if request.auth else None


class DailyLimits(BaseThrottle):
    """Counts a call for its key, and rejects it if a daily limit is reached."""

    def allow_request(self, request: Request, view: Any) -> bool:
        if request.auth:
            current_call().begin(key_of(request))
        return True
