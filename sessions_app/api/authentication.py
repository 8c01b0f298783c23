"""Authentication of a request: `Authorization: Bearer <key or token>`."""

from typing import Protocol

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from sessions_app.api.remembered_keys import NOT_VALID, key_with
from sessions_app.models import ApiKey


class Issuer(Protocol):
    """An issuer of tokens that stand for keys.

    Attributes:
        prefix: How the text of its tokens begins.
    """

    prefix: str

    def key_with(self, text: str, path: str) -> ApiKey | None:
        """Return the key that a token stands for at a path, with the token's scopes in `granted`; None if for none."""

    def challenge(self, path: str) -> str:
        """Return the `WWW-Authenticate` of a 401 at a path; blank for the usual one."""


ISSUERS: list[Issuer] = []  # extras add theirs


def issuer_of(text: str) -> Issuer | None:
    """Return the issuer of a token; None for a key."""
    return next((issuer for issuer in ISSUERS if text.startswith(issuer.prefix)), None)


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey. Wrong, expired and revoked keys are answered alike."""

    def authenticate(self, request: Request) -> tuple[ApiKey, ApiKey] | None:
        """Return the key, in the places of user and credentials; None when the header is absent."""
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
        """Name the scheme, which makes a missing key a 401, not a 403."""
        return next((told for issuer in ISSUERS if (told := issuer.challenge(request.path))), "Bearer")
