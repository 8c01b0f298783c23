"""Authentication of a request: `Authorization: Bearer <key>`."""

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from sessions_app.api.remembered_keys import NOT_VALID, key_with
from sessions_app.models import ApiKey


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey. Wrong, expired and revoked keys are answered alike."""

    def authenticate(self, request: Request) -> tuple[ApiKey, ApiKey] | None:
        """Return the key, in the places of user and credentials; None when the header is absent."""
        kind, _, text = get_authorization_header(request).partition(b" ")
        if not kind:
            return None
        key = key_with(text.decode("ascii", "replace").strip()) if kind.lower() == b"bearer" else None
        if key is None:
            raise AuthenticationFailed(NOT_VALID)
        key.touch()
        return key, key

    def authenticate_header(self, request: Request) -> str:
        """Name the scheme, which makes a missing key a 401, not a 403."""
        return "Bearer"
