"""The rate at which a key may call."""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle


class KeyRateThrottle(SimpleRateThrottle):
    """`API_RATE` requests a second, counted for each key in each web process."""

    def get_rate(self) -> str:
        return f"{settings.API_RATE}/s"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """Return a name for the key's calls; None, which is never throttled, for the few pages that need no key."""
        return f"throttle:{request.auth.pk}" if request.auth else None
