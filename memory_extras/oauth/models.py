"""Assistants with their grants, codes and tokens.

A consent is a grant by an operator or an end user. It has an API key for one person. This key expires, and is limited,
listed and revoked like any other key, but the platform never issues its text. Codes and tokens represent the key, and
are stored as hashes.
"""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Self
from urllib.parse import urlsplit

from django.db import models, transaction
from django.utils import timezone
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    AbstractGrant,
    AbstractRefreshToken,
    ApplicationManager,
    clear_expired,
)

from memory_extras.oauth.conf import TOKEN_LIFETIME
from sessions_app.models import ApiKey, Application, Event, UserProfile
from sessions_app.refusals import Refusal

UNUSED_LIFETIME = timedelta(days=1)  # lifetime of a client that registered itself and has no grant
UNUSED_LIFETIME_IF_FULL = timedelta(minutes=10)  # lifetime of such a client if there are too many of them
MAX_UNUSED = 1_000
URI_MAX_CHARS = 2_000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PERSON = "person"  # actor of events and grants; doesn't identify the person, so erasures need not clear it
ASSISTANT_REVOKED = "assistant_revoked"
APP_SCHEMES = ("cursor", "vscode", "vscode-insiders", "windsurf", "zed")  # URI schemes of desktop applications


class BadRedirect(Refusal):
    """A redirect URI that is not allowed."""

    code = "invalid_redirect_uri"


def check_redirect_uri(uri: str) -> None:
    """Raise `BadRedirect` unless a URI uses HTTPS or the known scheme of an application, or is on this machine."""
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname or "", parts.port  # an invalid port raises ValueError
    except ValueError:
        host = ""
    is_safe = bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK) or parts.scheme in APP_SCHEMES
    )
    is_plain = uri.isascii() and uri.isprintable() and " " not in uri and "#" not in uri and "@" not in uri
    if not (is_safe and is_plain):
        raise BadRedirect(
            "A redirect URI must use https, http on a loopback address, or the scheme of a known app. It can't have "
            "a fragment."
        )


class AssistantManager(ApplicationManager):  # type: ignore[misc]
    def register(self, name: str, redirect_uris: Sequence[str], *, registered_itself: bool = False) -> "Assistant":
        """Add a public client, which has no secret. Raise `BadRedirect` for a bad URI."""
        for uri in redirect_uris:
            check_redirect_uri(uri)
        sources = AbstractApplication.RegistrationSource
        added: Assistant = self.create(
            client_id=secrets.token_urlsafe(24),
            name=name,
            redirect_uris=" ".join(redirect_uris),
            client_type=AbstractApplication.CLIENT_PUBLIC,
            client_secret="",
            hash_client_secret=False,
            authorization_grant_type=AbstractApplication.GRANT_AUTHORIZATION_CODE,
            registration_source=sources.DCR if registered_itself else sources.MANUAL,
        )
        return added

    def lock(self, client_id: str) -> None:
        """Lock a client for the rest of the transaction, so that it isn't revoked while it gets a token."""
        if client_id.isprintable():
            list(self.filter(client_id=client_id).select_for_update())

    def has_room(self, limit: int) -> bool:
        """Delete old self-registered clients without grants. Return whether fewer than `limit` remain."""
        unused = self.filter(registration_source=AbstractApplication.RegistrationSource.DCR, consents=None)
        for lasts in (UNUSED_LIFETIME, UNUSED_LIFETIME_IF_FULL):
            unused.filter(created__lt=timezone.now() - lasts).delete()
            if unused.count() < limit:
                return True
        return False


class Assistant(AbstractApplication):  # type: ignore[misc]
    """A client that may request access."""

    user = None  # removes the library's field: an assistant belongs to no user
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = AssistantManager()

    class Meta(AbstractApplication.Meta):  # type: ignore[misc]
        verbose_name = "assistant"

    @property
    def state(self) -> str:
        return "revoked" if self.revoked_at else "active"

    @property
    def registered_itself(self) -> bool:
        """Whether the assistant registered itself, so that its name is not verified."""
        return bool(self.registration_source == self.RegistrationSource.DCR)

    def is_usable(self, request: object) -> bool:
        return self.revoked_at is None

    def redirect_uri_allowed(self, uri: str) -> bool:
        """Return whether a URI exactly matches one of the client's."""
        return uri in self.redirect_uris.split()

    @transaction.atomic
    def revoke(self, *, by: str) -> int | None:
        """Permanently revoke all its grants. Return their number, or None if it was already revoked."""
        if not Assistant.objects.filter(pk=self.pk, revoked_at=None).select_for_update():
            return None
        self.revoked_at = timezone.now()
        self.save(update_fields=["revoked_at"])
        keys = ApiKey.objects.filter(consent__assistant=self, revoked_at=None).update(revoked_at=self.revoked_at)
        payload = {"client_id": self.client_id, "keys": keys}
        Event.objects.create(type=ASSISTANT_REVOKED, actor=by, payload=payload)
        return keys


class ConsentQuerySet(models.QuerySet["Consent"]):
    def active(self) -> Self:
        """Return grants that are not revoked or expired."""
        return self.filter(key__revoked_at=None, key__expires_at__gt=timezone.now())

    def by_person(self, user_id: str, application: Application) -> Self:
        """Return the grants that a person made for their own memory."""
        return self.filter(granted_by=PERSON, key__user__user_id=user_id, key__user__application=application)

    @transaction.atomic
    def allow(
        self, assistant: Assistant, *, user: UserProfile, scopes: Sequence[str], ends_at: datetime, by: str
    ) -> "Consent":
        """Grant an assistant access to one person's memory.

        Args:
            ends_at: When the grant ends, however often its tokens are renewed.
            by: The actor: `operator:…` or `person`.
        """
        ApiKey.objects.filter(consent__code__used_at=None, consent__code__expires__lt=timezone.now()).delete()
        clear_expired()
        scope = ApiKey.Scope.WRITE if {"write", "chat"} & {*scopes} else ApiKey.Scope.READ
        key, _ = ApiKey.objects.issue(assistant.name, user=user, scope=scope, expires_at=ends_at)
        return self.create(key=key, assistant=assistant, scope=" ".join(scopes), granted_by=by)


class Consent(models.Model):
    """A grant that gives an assistant access to one person's memory."""

    key = models.OneToOneField(ApiKey, on_delete=models.CASCADE, related_name="consent")
    assistant = models.ForeignKey(Assistant, on_delete=models.CASCADE, related_name="consents")
    scope = models.CharField(max_length=64)
    granted_by = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ConsentQuerySet.as_manager()

    class Meta:
        verbose_name = "OAuth grant"

    def __str__(self) -> str:
        return f"{self.assistant} by {self.granted_by}"

    def seconds_left(self) -> int:
        """Return the lifetime in seconds of a new token."""
        until_end = self.key.expires_at - timezone.now() if self.key.expires_at else timedelta()
        return max(0, int(min(until_end, TOKEN_LIFETIME).total_seconds()))


class Code(AbstractGrant):  # type: ignore[misc]
    """An authorization code. `code` contains its hash."""

    user = None  # removes the library's field: the consent records who granted access
    consent = models.OneToOneField(Consent, on_delete=models.CASCADE, related_name="code")
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta(AbstractGrant.Meta):  # type: ignore[misc]
        verbose_name = "OAuth code"


class AccessToken(AbstractAccessToken):  # type: ignore[misc]
    user = None
    consent = models.ForeignKey(Consent, on_delete=models.CASCADE, related_name="+")

    objects: models.Manager["AccessToken"] = models.Manager()

    class Meta(AbstractAccessToken.Meta):  # type: ignore[misc]
        verbose_name = "OAuth access token"


class RefreshToken(AbstractRefreshToken):  # type: ignore[misc]
    """A token that is exchanged once for new tokens."""

    user = None
    consent = models.ForeignKey(Consent, on_delete=models.CASCADE, related_name="+")

    objects: models.Manager["RefreshToken"] = models.Manager()

    class Meta(AbstractRefreshToken.Meta):  # type: ignore[misc]
        verbose_name = "OAuth refresh token"
