"""The rate limit and the daily limits of API keys."""

from typing import Any

from django.conf import settings
from django.core.cache.backends.base import BaseCache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from sessions_app.api.permissions import key_of
from sessions_app.models.daily_limit import current_call
from sessions_app.process_cache import ProcessCache

MAX_KEYS = 10_000  # maximum keys whose recent calls a process knows


class _RecentCalls(BaseCache):
    """Stores the times of keys' recent calls for DRF's throttle. Django's own cache would pickle them."""

    def __init__(self) -> None:
        super().__init__({})
        self._calls: ProcessCache[Any, Any] = ProcessCache(MAX_KEYS)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        calls = self._calls.get(key)
        return default if calls is None else calls

    def set(self, key: Any, value: Any, timeout: Any = None, version: int | None = None) -> None:
        self._calls.put(key, value)


class KeyRateThrottle(SimpleRateThrottle):
    """Allows `API_RATE` requests per second and key in each web process."""

    cache = _RecentCalls()

    def get_rate(self) -> str:
        return f"{settings.API_RATE}/s"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """Return the cache key for the API key's calls. None if the request has no API key, so it is not throttled."""
        return f"throttle:{request.auth.pk}" if request.auth else None


class DailyLimits(BaseThrottle):
    """Counts a call for its key, and rejects it if a daily limit is reached."""

    def allow_request(self, request: Request, view: Any) -> bool:
        if request.auth:
            current_call().begin(key_of(request))
        return True
