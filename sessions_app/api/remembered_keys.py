"""Keys that proved right a moment ago, for which a request need not ask by a message of its own.

What a process remembers of a key is confirmed within the message in which the request first speaks to the database.
Where the key was revoked since, that message ends before anything else in it is carried out, and the request is
answered as one with a wrong key. So a key does nothing more from the moment it is revoked, whichever process is called.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from django.db import DatabaseError, connection
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from psycopg import errors, sql
from rest_framework.exceptions import AuthenticationFailed

from sessions_app import first_statement
from sessions_app.daily_limits import FRESH
from sessions_app.models import ApiKey, DailyLimit
from sessions_app.process_cache import ProcessCache
from sessions_app.proven import PROVEN, hash_of

SECONDS = FRESH  # whether anybody has limits of their own is remembered with a key, and no longer than limits are
MOST = 10_000  # keys
NOT_VALID = "The API key is not valid. It may be expired or revoked."

# What a key may do is settled when it is made, so this is all that may have changed. A division by zero is how a
# message ends before its other statements.
_CONFIRMING_SQL = """
SELECT 1 / count(*) FROM sessions_app_apikey
WHERE prefix = {} AND secret_hash = {} AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());
"""


class _Remembered(NamedTuple):
    key: ApiKey
    confirming: str


class _Unconfirmed(NamedTuple):
    text: str
    confirming: str


REMEMBERED: ProcessCache[bytes, _Remembered] = ProcessCache(MOST, seconds=SECONDS)  # by a hash of the key's text
_confirms: ContextVar[bool] = ContextVar("confirms", default=False)  # the first message of this request will
_unconfirmed: ContextVar[_Unconfirmed | None] = ContextVar("unconfirmed", default=None)  # the key of this request


def key_with(text: str) -> ApiKey | None:
    """Return the valid key with this text, or None; one that is remembered is confirmed within `confirming`."""
    place = hash_of(text)
    known = REMEMBERED.get(place)
    if known and known.key.is_valid() and _confirms.get():
        _unconfirmed.set(_Unconfirmed(text, known.confirming))
        return known.key
    REMEMBERED.drop(place)
    _unconfirmed.set(None)
    if key := ApiKey.objects.verify(text):
        confirming = sql.SQL(_CONFIRMING_SQL).format(key.prefix, key.secret_hash).as_string()
        REMEMBERED.put(place, _Remembered(key, confirming))
    return key


@receiver([post_save, post_delete], sender=DailyLimit)
def forget(**_: Any) -> None:
    """Ask for all keys again: whether there are limits may have changed."""
    REMEMBERED.clear()


@contextmanager
def confirming() -> Iterator[None]:
    """Serve a request in the block, whose key is confirmed by the first message of the block to the database."""
    is_nested, outer = _confirms.set(True), _unconfirmed.set(None)
    try:
        yield
    finally:
        _unconfirmed.reset(outer)
        _confirms.reset(is_nested)


def confirm() -> None:
    """Confirm the key of this request, if that is still to be done.

    Raises:
        AuthenticationFailed: the key isn't valid any more.
    """
    if _unconfirmed.get():
        with connection.cursor() as cursor:
            cursor.execute("SELECT")


class KeyConfirmed(first_statement.Provider):
    """Confirms the key of a request by the first message of the request."""

    def before(self, *, begins: bool) -> str:
        unconfirmed = _unconfirmed.get()
        return unconfirmed.confirming if unconfirmed else ""

    def executed(self) -> None:
        _unconfirmed.set(None)

    def failed(self, error: DatabaseError) -> None:
        """Refuse the key, if that is what failed.

        Raises:
            AuthenticationFailed: the key isn't valid any more.
        """
        unconfirmed = _unconfirmed.get()
        if unconfirmed and isinstance(error.__cause__, errors.DivisionByZero):
            _unconfirmed.set(None)
            PROVEN.drop(unconfirmed.text)
            raise AuthenticationFailed(NOT_VALID) from None
