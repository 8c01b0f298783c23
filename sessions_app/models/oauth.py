"""Assistants that ask for a key by OAuth, and what operators granted them.

A grant is a key of one person with an end, and what it takes to get it: a code, which is good once and for a minute,
then a token that renews it. The key is where all keys are; to revoke it ends the grant. Of codes and tokens there are
hashes alone.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.utils import timezone

from sessions_app.models.api_key import ApiKey
from sessions_app.models.event import Event
from sessions_app.models.user_profile import UserProfile
from sessions_app.refusals import Refusal

CODE_LASTS = timedelta(minutes=1)
UNUSED_LASTS = timedelta(days=1)  # a client that registered itself and was granted nothing
UNUSED_LASTS_AMONG_MANY = timedelta(minutes=10)  # so that whoever fills the list keeps others out for no longer
UNUSED_MOST = 1_000
URI_MAX_CHARS = 2_000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
ASSISTANT_REVOKED = "assistant_revoked"
OF_EDITORS = ("cursor", "vscode", "vscode-insiders", "windsurf", "zed")  # schemes that lead to a program, not to a site


class OAuthRefused(Refusal):
    """A request that OAuth has a code for.

    Args:
        code: as RFC 6749 and those that follow it name it.
        text: says why.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Tokens:
    """What a client gets.

    Args:
        key: the text of the key.
        refresh: what renews it, once.
        expires_in: seconds that the key is good for.
        scope: of the key.
    """

    key: str
    refresh: str
    expires_in: int
    scope: str


def digest(text: str) -> str:
    """Return the hash by which a code or token is kept; it has 256 random bits, so no slow one is needed."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def check_redirect_uri(uri: str) -> None:
    """Check that a code may be sent there: by HTTPS, to this machine, or to a program that is known by its scheme.

    Raises:
        OAuthRefused: it may not.
    """
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    is_safe = bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK) or parts.scheme in OF_EDITORS
    )
    is_plain = uri.isascii() and uri.isprintable() and " " not in uri and "#" not in uri and "@" not in uri
    if not (is_safe and is_plain):
        raise OAuthRefused(
            "invalid_redirect_uri", "A redirect URI is https, or http to this machine, without fragment."
        )


class OAuthClientQuerySet(models.QuerySet["OAuthClient"]):
    def register(self, name: str, redirect_uris: Sequence[str], *, by: str) -> "OAuthClient":
        """Add a client; it has no secret, for what runs on somebody's machine keeps none.

        Args:
            name: what it calls itself.
            redirect_uris: where codes may be sent, exactly.
            by: who added it.
        """
        client_id = secrets.token_urlsafe(24)
        return self.create(client_id=client_id, name=name, redirect_uris=list(redirect_uris), registered_by=by)

    def known(self, client_id: str) -> "OAuthClientQuerySet":
        """Return the client of this id, where it may ask for keys; a stranger may have sent any text for one."""
        is_one = client_id.isascii() and client_id.isprintable()
        return self.filter(client_id=client_id, revoked_at=None) if is_one else self.none()

    def hold(self, client_id: str) -> bool:
        """Lock a client for the rest of the transaction, so that no key is given out while it is revoked.

        Returns:
            Whether it may ask for keys.
        """
        return bool(self.known(client_id).select_for_update())

    def unused(self) -> "OAuthClientQuerySet":
        """Return those that registered themselves and were granted nothing."""
        return self.filter(registered_by=OAuthClient.ITSELF, grants=None)

    def has_room(self, most: int) -> bool:
        """Delete those of which nothing came within a day, or, to make room, within minutes; tell whether there is any.

        Args:
            most: that may be unused.
        """
        for lasts in (UNUSED_LASTS, UNUSED_LASTS_AMONG_MANY):
            self.unused().filter(created_at__lt=timezone.now() - lasts).delete()
            if self.unused().count() < most:
                return True
        return False


class OAuthClient(models.Model):
    """An assistant that may ask operators for a key."""

    ITSELF = "itself"

    client_id = models.CharField(max_length=64, unique=True, editable=False)
    name = models.CharField(max_length=255)
    redirect_uris = ArrayField(models.CharField(max_length=URI_MAX_CHARS), help_text="Where codes may be sent.")
    registered_by = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = OAuthClientQuerySet.as_manager()

    class Meta:
        verbose_name = "OAuth client"

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> str:
        """`active` or `revoked`."""
        return "revoked" if self.revoked_at else "active"

    @transaction.atomic
    def revoke(self, *, by: str) -> int | None:
        """End all that it was granted, for good, and have it ask for nothing more.

        Args:
            by: operator:….

        Returns:
            How many keys ended; None if it had been revoked before.
        """
        if not OAuthClient.objects.hold(self.client_id):
            return None
        self.revoked_at = timezone.now()
        self.save(update_fields=["revoked_at"])
        keys = ApiKey.objects.filter(grant__client=self, revoked_at=None).update(revoked_at=self.revoked_at)
        payload = {"client_id": self.client_id, "keys": keys}
        Event.objects.create(type=ASSISTANT_REVOKED, actor=by, payload=payload)
        return keys


@dataclass(frozen=True)
class Asked:
    """What a client asks an operator for.

    Args:
        client: that asks.
        redirect_uri: where the answer goes, one of the client's.
        code_challenge: the hash of what it will have to show.
        state: comes back with the answer.
        scopes: that it wants.
    """

    client: OAuthClient
    redirect_uri: str
    code_challenge: str
    state: str
    scopes: Sequence[str]


class OAuthGrantManager(models.Manager["OAuthGrant"]):
    @transaction.atomic
    def allow(
        self, asked: Asked, *, user: UserProfile, scope: str, ends_at: datetime, by: str
    ) -> tuple["OAuthGrant", str]:
        """Grant a client a key of a person; return the grant and the code that fetches the key.

        Args:
            asked: what the client asked for.
            user: whose memory it is.
            scope: of the key.
            ends_at: when it is over, however often the key was renewed.
            by: operator:….
        """
        expires_at, code = timezone.now() + CODE_LASTS, secrets.token_urlsafe(32)
        self._forget_unfetched()
        key, _ = ApiKey.objects.issue(asked.client.name, user=user, scope=scope, expires_at=expires_at)
        grant = self.create(
            key=key,
            client=asked.client,
            granted_by=by,
            redirect_uri=asked.redirect_uri,
            code_hash=digest(code),
            code_challenge=asked.code_challenge,
            code_expires_at=expires_at,
            ends_at=ends_at,
        )
        return grant, code

    def exchange(self, code: str, *, client_id: str, redirect_uri: str, verifier: str) -> Tokens:
        """Return the key for a code, which is good once: whoever shows it again ends the grant.

        Raises:
            OAuthRefused: it isn't good, or another's.
        """
        with transaction.atomic():
            is_known = OAuthClient.objects.hold(client_id)
            grant = self._locked(code_hash=digest(code))
            if grant and is_known and grant.is_of(client_id) and grant.takes(redirect_uri, verifier):
                return grant.renew()
            if grant:
                grant.key.revoke()  # committed: a code that somebody else may know is good for nothing
        raise OAuthRefused("invalid_grant", "The code is not good, was used, or is another's.")

    def refresh(self, token: str, *, client_id: str) -> Tokens:
        """Renew a key by its token, which is good once: whoever shows it again ends the grant.

        Raises:
            OAuthRefused: it isn't good, or another's.
        """
        with transaction.atomic():
            is_known = OAuthClient.objects.hold(client_id)
            grant = self._locked(refresh_hash=digest(token))
            if grant and is_known and grant.is_of(client_id) and not grant.is_over:
                return grant.renew()
            if stolen := self._locked(former_refresh_hash=digest(token)):
                stolen.key.revoke()
        raise OAuthRefused("invalid_grant", "The token is not good, was used, or is another's.")

    def _forget_unfetched(self) -> None:
        """Delete keys that nobody fetched in time: nobody ever had them."""
        ApiKey.objects.filter(grant__code_used_at=None, grant__code_expires_at__lt=timezone.now()).delete()

    def _locked(self, **named: str) -> "OAuthGrant | None":
        return self.select_for_update(of=("self", "key")).select_related("key", "client").filter(**named).first()


class OAuthGrant(models.Model):
    """A key of a person that an operator granted an assistant."""

    key = models.OneToOneField(ApiKey, on_delete=models.CASCADE, related_name="grant")
    client = models.ForeignKey(OAuthClient, on_delete=models.CASCADE, related_name="grants")
    granted_by = models.CharField(max_length=255)
    redirect_uri = models.CharField(max_length=URI_MAX_CHARS)
    code_hash = models.CharField(max_length=64, unique=True)
    code_challenge = models.CharField(max_length=128)
    code_expires_at = models.DateTimeField()
    code_used_at = models.DateTimeField(null=True, blank=True)
    refresh_hash = models.CharField(max_length=64, blank=True, db_index=True)
    former_refresh_hash = models.CharField(max_length=64, blank=True, db_index=True)
    ends_at = models.DateTimeField(help_text="However often the key was renewed.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = OAuthGrantManager()

    class Meta:
        verbose_name = "OAuth grant"

    def __str__(self) -> str:
        return f"{self.client} by {self.granted_by}"

    def is_of(self, client_id: str) -> bool:
        """Tell whether it was granted to this client."""
        return self.client.client_id == client_id

    @property
    def is_over(self) -> bool:
        """Tell whether the key can't be renewed any more."""
        return self.key.revoked_at is not None or self.ends_at <= timezone.now()

    def takes(self, redirect_uri: str, verifier: str) -> bool:
        """Tell whether the code may be used: for the first time, in time, by whoever asked for it."""
        is_fresh = self.code_used_at is None and self.code_expires_at > timezone.now() and not self.is_over
        shown = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode(errors="replace")).digest()).decode()
        return (
            is_fresh
            and self.redirect_uri == redirect_uri
            and hmac.compare_digest(shown.rstrip("=").encode(), self.code_challenge.encode())
        )

    def renew(self) -> Tokens:
        """Give the key another secret and some more time; what was given out before is good for nothing."""
        now, refresh = timezone.now(), secrets.token_urlsafe(32)
        expires_at = min(now + timedelta(minutes=settings.OAUTH.key_minutes), self.ends_at)
        text = self.key.renew(expires_at)
        self.former_refresh_hash, self.refresh_hash = self.refresh_hash, digest(refresh)
        self.code_used_at = self.code_used_at or now
        self.save(update_fields=["former_refresh_hash", "refresh_hash", "code_used_at"])
        return Tokens(text, refresh, max(int((expires_at - now).total_seconds()), 0), self.key.scope)
