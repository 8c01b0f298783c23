"""Hooks of django-oauth-toolkit. Codes and tokens belong to a consent and end with it."""

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.oauth2_backends import OAuthLibCore
from oauth2_provider.oauth2_validators import OAuth2Validator

from memory_extras.oauth.access_tokens import digest
from memory_extras.oauth.conf import CODE_SECONDS
from memory_extras.oauth.models import AccessToken, Assistant, Code, Consent, RefreshToken


def consents_of_token(text: str) -> QuerySet[Consent]:
    """Return the consents that a token was issued for, even if the token is no longer valid."""
    access, refresh = (
        tokens.objects.filter(token_checksum=digest(text)).values("consent") for tokens in (AccessToken, RefreshToken)
    )
    return Consent.objects.filter(Q(pk__in=access) | Q(pk__in=refresh))


class Backend(OAuthLibCore):  # type: ignore[misc]
    """Replaces a code by its hash before it is looked up."""

    def extract_body(self, request: HttpRequest) -> list[tuple[str, str]]:
        return [(name, digest(value) if name == "code" else value) for name, value in super().extract_body(request)]


class Validator(OAuth2Validator):  # type: ignore[misc]
    """Binds codes and tokens to consents."""

    def _load_application(self, client_id: str | None, request: Any) -> Assistant | None:
        """Find the client. Skip ids with NUL characters, because PostgreSQL rejects them."""
        is_text = client_id is not None and client_id.isprintable()
        found: Assistant | None = super()._load_application(client_id, request) if is_text else None
        return found

    def get_default_redirect_uri(self, client_id: str, request: Any, *args: Any, **kw: Any) -> None:
        """Return None, because a code must be redeemed with the redirect URI of its request."""

    # --- codes ---

    def _create_authorization_code(self, request: Any, code: dict[str, str], expires: datetime | None = None) -> Code:
        created: Code = Code.objects.create(
            consent=request.consent,
            application=request.client,
            code=digest(code["code"]),
            expires=timezone.now() + timedelta(seconds=CODE_SECONDS),
            redirect_uri=request.redirect_uri,
            scope=request.consent.scope,
            code_challenge=request.code_challenge,
            code_challenge_method=request.code_challenge_method,
            resource=request.resource,
        )
        return created

    def validate_code(self, client_id: str, code: str, client: Assistant, request: Any, *args: Any, **kw: Any) -> bool:
        """Return whether a code is the client's, unused and not expired. Lock it until its tokens are stored."""
        locked = Code.objects.select_for_update(of=("self",)).select_related("consent__key")
        found = locked.filter(code=code, application=client, used_at=None).first()
        if found is None or found.is_expired() or not found.consent.key.is_valid():
            return False
        request.consent, request.scopes = found.consent, found.scope.split()
        return True

    def invalidate_authorization_code(self, client_id: str, code: str, request: Any, *args: Any, **kw: Any) -> None:
        """Mark a code as used. It stays stored, to detect its reuse."""
        Code.objects.filter(code=code).update(used_at=timezone.now())

    # --- tokens ---

    def validate_refresh_token(
        self, refresh_token: str, client: Assistant, request: Any, *args: Any, **kw: Any
    ) -> bool:
        """Return whether a token may be used. The reuse of a token ends its consent, because one copy was stolen."""
        is_good = super().validate_refresh_token(refresh_token, client, request, *args, **kw)
        used = RefreshToken.objects.filter(token_checksum=digest(refresh_token), revoked__isnull=False)
        for spent in used.select_related("consent__key"):
            spent.consent.key.revoke()
        if not is_good:
            return False
        request.consent = Consent.objects.select_related("key").get(pk=request.refresh_token_instance.consent_id)
        return bool(request.consent.key.is_valid())

    def _create_access_token(
        self, expires: datetime, request: Any, token: dict[str, str], source_refresh_token: RefreshToken | None = None
    ) -> AccessToken:
        created = AccessToken(
            consent=request.consent,
            application=request.client,
            scope=token["scope"],
            expires=expires,
            source_refresh_token=source_refresh_token,
            resource=request.resource,
        )
        self._set_token_value(created, token["access_token"])
        created.save()
        return created

    def _create_refresh_token(
        self, request: Any, refresh_token_code: str, access_token: AccessToken, previous: RefreshToken | None
    ) -> RefreshToken:
        created = RefreshToken(
            consent=request.consent,
            application=request.client,
            access_token=access_token,
            token_family=previous.token_family if previous else uuid.uuid4(),
            resource=request.resource,
        )
        self._set_token_value(created, refresh_token_code)
        created.save()
        return created

    def revoke_token(self, token: str, token_type_hint: str, request: Any, *args: Any, **kw: Any) -> None:
        for consent in consents_of_token(token).filter(assistant=request.client).select_related("key"):
            consent.key.revoke()
