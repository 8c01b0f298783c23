"""Authentication with `Authorization: Bearer <key or token>`.

A cache of recently verified API keys saves a round trip to the database per request. A cached key is checked again in
the same database message as the request's first statement. If the key is no longer valid, the message fails before its
other statements run, and the client gets the error for a wrong key. So revoking a key takes effect immediately in all
processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from django.db import DatabaseError, connection
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from psycopg import errors, sql
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from sessions_app.database import transactions
from sessions_app.models import ApiKey, DailyLimit
from sessions_app.models.daily_limit import CACHE_SECONDS
from sessions_app.process_cache import VERIFIED, ProcessCache, hash_of

MAX_KEYS = 10_000  # maximum cached keys
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
