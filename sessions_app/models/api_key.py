"""API keys.

A key has the form `mem_<prefix>_<secret>`. The prefix is indexed. The prefix of a person's key starts with `u`, so a
web process recognizes such a key without a query. The secret has 256 random bits, and only its SHA-256 hash is stored.
A slow hash is needed only for guessable passwords; here, it would only slow down requests.
"""

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from sessions_app.database.sql import columns, read_first
from sessions_app.limited_operators import unlimited
from sessions_app.models.application import DEFAULT, Application
from sessions_app.models.user_profile import UserProfile
from sessions_app.process_cache import VERIFIED

LAST_USE_RESOLUTION = timedelta(minutes=1)
EXPORT, CHAT = "export", "chat"  # additional scopes of tokens; `read` includes `export`, and `write` includes `chat`
_LEVELS = {"read": 0, EXPORT: 0, "write": 1, CHAT: 1, "admin": 2}


_VERIFY_SQL = """
SELECT {columns}, EXISTS (SELECT FROM sessions_app_dailylimit) FROM sessions_app_apikey k WHERE prefix = %s
"""


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiKeyManager(models.Manager["ApiKey"]):
    def issue(
        self,
        name: str,
        *,
        user: UserProfile | None = None,
        application: int = DEFAULT,
        scope: str = "write",
        expires_at: datetime | None = None,
    ) -> tuple["ApiKey", str]:
        """Create a key. Return it with its text, which can't be retrieved again.

        A key with a user belongs to the user's application. `application` is the primary key of a service key's
        application.
        """
        prefix, secret = f"{'u' if user else ''}{secrets.token_hex(6)}", secrets.token_urlsafe(32)
        key = self.create(
            name=name,
            user=user,
            application_id=application,
            scope=scope,
            expires_at=expires_at,
            prefix=prefix,
            secret_hash=_digest(secret),
        )
        return key, f"mem_{prefix}_{secret}"

    def verify(self, text: str) -> "ApiKey | None":
        """Return the valid key with this text, or None. A wrong secret takes as long as an unknown prefix."""
        parts = text.split("_", 2)
        prefix, secret = parts[1:] if len(parts) == 3 and parts[0] == "mem" else ("", "")
        key = self._with_limits(prefix)
        matches = hmac.compare_digest(_digest(secret), key.secret_hash if key else _digest(""))
        if not key or not matches or not key.is_valid():
            VERIFIED.drop(text)
            return None
        VERIFIED.add(text, None if key.application_id == DEFAULT else key.application_id)
        if key.user_id:
            with unlimited():  # no person or application is known yet
                key.user  # noqa: B018 (it is looked up here, and kept)
        return key

    def _with_limits(self, prefix: str) -> "ApiKey | None":
        """Return the key with this prefix, with `has_limits` set."""
        if (found := read_first(ApiKey, _VERIFY_SQL.format(columns=columns(ApiKey, "k")), [prefix])) is None:
            return None
        key, more = found
        [key.has_limits] = more
        return key

    def prefixes_in_use(self, limit: int) -> "models.QuerySet[ApiKey, str]":
        """Return the prefixes of keys that were not revoked, most recently used first."""
        return (
            self.filter(revoked_at=None)
            .order_by(F("last_used_at").desc(nulls_last=True))
            .values_list("prefix", flat=True)[:limit]
        )


class ApiKey(models.Model):
    """An API key. A service key acts for any user of its application. A key with a user acts only for that user."""

    class Scope(models.TextChoices):
        READ = "read"
        WRITE = "write"
        ADMIN = "admin"

    name = models.CharField(max_length=255)
    prefix = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64)
    application = models.ForeignKey(
        Application, db_default=models.Value(DEFAULT), on_delete=models.PROTECT, related_name="+"
    )
    user = models.ForeignKey(
        UserProfile,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        help_text="The only user that the key gives access to. Blank for a service key, which gives access "
        "to all users of the application.",
    )
    scope = models.CharField(max_length=8, choices=Scope, default=Scope.WRITE)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(
        null=True, blank=True, help_text="When the key was last used. Updated at most once a minute."
    )

    objects = ApiKeyManager()

    class Meta:
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(condition=Q(scope__in=["read", "write", "admin"]), name="api_key_scope_known")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    granted: frozenset[str] | None = None  # scopes of a token that represents the key; None if the client sent the key
    has_limits = False  # whether any custom limits exist; set by `verify`

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the key. A person's key always belongs to the person's application."""
        if self.user:
            self.application_id = self.user.application_id
        super().save(*args, **kwargs)

    # required by Django REST framework, because `request.user` is the key
    is_authenticated = True

    @property
    def actor(self) -> str:
        """The key's actor name, as stored in jobs and events."""
        return f"key:{self.prefix}"

    @property
    def state(self) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= timezone.now() else "active"

    def is_valid(self) -> bool:
        return self.state == "active"

    def revoke(self) -> bool:
        """Revoke the key immediately and permanently. Return False if it was already revoked."""
        now = timezone.now()
        if not ApiKey.objects.filter(pk=self.pk, revoked_at=None).update(revoked_at=now):
            return False
        self.revoked_at = now
        return True

    def clean(self) -> None:
        if self._state.adding and self.expires_at is not None and self.expires_at <= timezone.now():
            raise ValidationError({"expires_at": "The time must be in the future."})

    def allows(self, scope: str) -> bool:
        """Return whether the key's scope includes this one: admin ⊃ write ⊃ read. A token has only its own scopes."""
        if self.granted is not None:
            return scope in self.granted
        return _LEVELS[self.scope] >= _LEVELS[scope]

    def touch(self) -> None:
        """Update `last_used_at`, at most once a minute."""
        now = timezone.now()
        if self.last_used_at is None or now - self.last_used_at >= LAST_USE_RESOLUTION:
            ApiKey.objects.filter(pk=self.pk).update(last_used_at=now)
            self.last_used_at = now
