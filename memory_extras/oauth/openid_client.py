"""Authlib's client for an OpenID provider whose key set contains keys of unknown types."""

from typing import Any

from authlib.integrations.django_client import DjangoOAuth2App
from joserfc.jwk import JWKRegistry


class OpenIDClient(DjangoOAuth2App):  # type: ignore[misc]
    """A client that skips unknown keys. Authlib rejects a key set with a key that it can't read."""

    def fetch_jwk_set(self, force: bool = False) -> dict[str, list[Any]]:
        return {"keys": [key for key in super().fetch_jwk_set(force)["keys"] if _is_known(key)]}


def _is_known(key: Any) -> bool:
    try:
        JWKRegistry.import_key(key)
    except Exception:  # also KeyError, TypeError and ValueError, for malformed keys
        return False
    return True
