"""Checks access tokens without importing the library that issues them."""

import hashlib

from django.db.models import Exists
from django.utils import timezone

from memory_extras.oauth.conf import ACCESS, MCP, METADATA, audience_of, current, resource_of
from memory_extras.oauth.models import AccessToken
from sessions_app.limited_operators import unlimited
from sessions_app.models import ApiKey, DailyLimit
from sessions_app.process_cache import VERIFIED


def digest(text: str) -> str:
    """Return the hash under which a code or token is stored. A fast hash is safe, because the text is random."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


class TokenIssuer:
    """Returns the API keys of access tokens. The core's entry points call it."""

    prefix = ACCESS

    def key_with(self, text: str, path: str) -> ApiKey | None:
        """Return the API key of a token, with the token's scopes. None if the token isn't valid at this path."""
        with unlimited():  # the person isn't known yet
            valid = AccessToken.objects.filter(token_checksum=digest(text), expires__gt=timezone.now())
            limited = valid.annotate(has_limits=Exists(DailyLimit.objects.all()))
            token = limited.select_related("consent__key__user").first() if current().is_on else None
        key: ApiKey | None = token.consent.key if token else None
        if token is None or key is None or not key.is_valid():
            VERIFIED.drop(text)
            return None
        VERIFIED.add(text, key.application_id)
        if resource_of(audience_of(path)) not in token.resource:
            return None
        key.granted, key.has_limits = frozenset(token.scope.split()), token.has_limits
        return key

    def challenge(self, path: str) -> str:
        """Return the header value that tells a client where to request a token. Blank if it can't request one."""
        is_announced = current().is_on and audience_of(path) == MCP
        return f'Bearer resource_metadata="{resource_of(METADATA)}{MCP}"' if is_announced else ""
