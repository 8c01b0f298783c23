"""Keys that let applications in.

A key reads `mem_<prefix>_<secret>`. The row is found by the indexed prefix; of the secret, 256 random bits, only a
SHA-256 is kept (a slow hash guards guessable passwords, and would only slow each request here).
"""

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models.user_profile import UserProfile

LAST_USE_RESOLUTION = timedelta(minutes=1)


# By hand for the same reason as entering a person's rows: see `row_security`.
_VERIFY_SQL = "SELECT * FROM sessions_app_apikey WHERE prefix = %s"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiKeyManager(models.Manager["ApiKey"]):
    def issue(
        self, name: str, *, user: UserProfile | None = None, scope: str = "write", expires_at: datetime | None = None
    ) -> tuple["ApiKey", str]:
        """Creates a key and returns it with its full text, which can't be had again."""
        prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        key = self.create(
            name=name, user=user, scope=scope, expires_at=expires_at, prefix=prefix, secret_hash=_digest(secret)
        )
        return key, f"mem_{prefix}_{secret}"

    def verify(self, text: str) -> "ApiKey | None":
        """The valid key with this text, or None; takes as long for a wrong secret as for an unknown prefix."""
        prefix, _, secret = text.removeprefix("mem_").partition("_")
        key = next(iter(self.raw(_VERIFY_SQL, [prefix])), None)
        matches = hmac.compare_digest(_digest(secret), key.secret_hash if key else _digest(""))
        return key if key and matches and key.is_valid() else None


class ApiKey(models.Model):
    """A service key acts for any user it names; a key with a user only for that one."""

    class Scope(models.TextChoices):
        READ = "read"
        WRITE = "write"
        ADMIN = "admin"

    name = models.CharField(max_length=255)
    prefix = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64)
    user = models.ForeignKey(
        UserProfile, null=True, blank=True, on_delete=models.CASCADE, help_text="Blank: a service key, for any user."
    )
    scope = models.CharField(max_length=8, choices=Scope, default=Scope.WRITE)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")

    objects = ApiKeyManager()

    class Meta:
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(condition=Q(scope__in=["read", "write", "admin"]), name="api_key_scope_known")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    # Django REST framework asks this of whatever authentication returns as the user of a request.
    is_authenticated = True

    @property
    def actor(self) -> str:
        """How the event log names who acted."""
        return f"key:{self.prefix}"

    @property
    def state(self) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= timezone.now() else "active"

    def is_valid(self) -> bool:
        """Neither revoked nor expired."""
        return self.state == "active"

    def revoke(self) -> bool:
        """Ends the key at once, for good.

        Returns:
            Whether it had not been revoked before.
        """
        now = timezone.now()
        if not ApiKey.objects.filter(pk=self.pk, revoked_at=None).update(revoked_at=now):
            return False
        self.revoked_at = now
        return True

    def clean(self) -> None:
        """A key that is made expired would open nothing."""
        if self._state.adding and self.expires_at is not None and self.expires_at <= timezone.now():
            raise ValidationError({"expires_at": "This lies in the past."})

    def allows(self, scope: str) -> bool:
        """Scopes include the lesser ones: admin ⊃ write ⊃ read."""
        order = list(self.Scope.values)
        return order.index(self.scope) >= order.index(scope)

    def touch(self) -> None:
        """Records the use, at most once a minute."""
        now = timezone.now()
        if self.last_used_at is None or now - self.last_used_at >= LAST_USE_RESOLUTION:
            ApiKey.objects.filter(pk=self.pk).update(last_used_at=now)
