"""The rate at which a key may call, and how often a day."""

from typing import Any

from django.conf import settings
from django.core.cache.backends.base import BaseCache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from sessions_app.api.person import key_of
from sessions_app.daily_limits import call_under_way
from sessions_app.process_cache import ProcessCache

MOST_KEYS = 10_000


class _RecentCalls(BaseCache):
    """The times of the last calls of keys. DRF's throttle keeps them in a Django cache, which would pickle them."""

    def __init__(self) -> None:
        super().__init__({})
        self._calls: ProcessCache[Any, Any] = ProcessCache(MOST_KEYS)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        calls = self._calls.get(key)
        return default if calls is None else calls

    def set(self, key: Any, value: Any, timeout: Any = None, version: int | None = None) -> None:
        self._calls.put(key, value)


class KeyRateThrottle(SimpleRateThrottle):
    """`API_RATE` requests a second, counted for each key in each web process."""

    cache = _RecentCalls()

    def get_rate(self) -> str:
        return f"{settings.API_RATE}/s"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """Return a name for the key's calls; None, which is never throttled, for the few pages that need no key."""
        return f"throttle:{request.auth.pk}" if request.auth else None


class DailyLimits(BaseThrottle):
    """Counts a call for its key, and says no where that may not call any more today."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Count the call.

        Raises:
            LimitReached: it is one too many.
        """
        if request.auth:
            call_under_way().begin(key_of(request))
        return True
