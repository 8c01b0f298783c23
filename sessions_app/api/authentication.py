"""Authentication with `Authorization: Bearer <key or token>`."""

from typing import Protocol

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from sessions_app.api.remembered_keys import NOT_VALID, key_with
from sessions_app.models import ApiKey


class Issuer(Protocol):
    """An issuer of tokens that represent API keys.

    Attributes:
        prefix: The prefix of its tokens.
    """

    prefix: str

    def key_with(self, text: str, path: str) -> ApiKey | None:
        """Return the key for a token at a path, with the token's scopes in `granted`. None if the token isn't valid."""

    def challenge(self, path: str) -> str:
        """Return the `WWW-Authenticate` header of a 401 at a path, or a blank string for the default."""


ISSUERS: list[Issuer] = []  # extras add issuers


def issuer_of(text: str) -> Issuer | None:
    """Return the issuer of a token, or None for a key."""
    return next((issuer for issuer in ISSUERS if text.startswith(issuer.prefix)), None)


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey. Wrong, expired and revoked keys get the same error."""

    def authenticate(self, request: Request) -> tuple[ApiKey, ApiKey] | None:
        """Return the key as both the user and the credentials. None without an `Authorization` header."""
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
        """Return the scheme. DRF then answers 401 instead of 403 if the key is missing."""
        return next((told for issuer in ISSUERS if (told := issuer.challenge(request.path))), "Bearer")
