"""Rate-limit unauthenticated requests by IP address.

A request is counted before its body is read or the database is queried. If its key proves valid, the count is reverted,
and later requests with the key skip the limit. When an address has reached its limit, requests whose key has an
existing prefix are still accepted, with a separate limit for each prefix.
"""

import asyncio
import ipaddress
import math
import re
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from cachetools import LRUCache
from django.conf import settings
from django.db import DatabaseError, connection

from memoryproject.serving.fair_shares import Refused
from sessions_app.models import ApiKey
from sessions_app.process_cache import VERIFIED

if TYPE_CHECKING:
    from starlette.types import Scope

NETWORK_BITS = 64  # addresses with the same prefix of this length belong to one IPv6 client
BURST_SECONDS = 10  # size of a full bucket: the requests of this many seconds may arrive at once
MAX_BUCKETS = 10_000  # number of addresses to track; the least recently used one is dropped, which resets its limit
MAX_PREFIXES = 100_000  # maximum prefixes to cache, of the most recently used keys
FRESH_SECONDS = 5.0  # how long the prefixes are cached
READ_TIMEOUT = 0.5  # how long a request waits for the prefixes

_PREFIX = re.compile(r"mem_([0-9a-z]{1,16})_")


def client_address(peer: str, forwarded: str) -> str:
    """Return the client's address. Behind a proxy, use the last `X-Forwarded-For` entry, which clients can't forge."""
    last = forwarded.rpartition(",")[2].strip()
    return last if last and settings.BEHIND_PROXY else peer


def address_range(address: str) -> str:
    """Return the range of addresses that counts as one client: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket has no address
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(found), NETWORK_BITS), strict=False))


class TokenBuckets:
    """A token bucket for each name, refilled with `ANONYMOUS_RATE` tokens per second. Not thread-safe."""

    def __init__(self) -> None:
        self._left: LRUCache[str, tuple[float, float]] = LRUCache(MAX_BUCKETS)

    def acquire(self, name: str) -> float:
        """Take a token. Return 0, or the seconds until one is available."""
        rate, now = settings.ANONYMOUS_RATE, time.monotonic()
        full = float(rate * BURST_SECONDS)
        left, at = self._left.get(name, (full, now))
        left = min(full, left + (now - at) * rate)
        wait = max(0.0, (1 - left) / rate)
        self._left[name] = left if wait else left - 1, now
        return wait

    def refund(self, name: str) -> None:
        """Put back the token of a request that proved to be authenticated."""
        left, at = self._left.get(name, (0.0, time.monotonic()))
        self._left[name] = left + 1, at


class KeyPrefixes:
    """The prefixes of existing keys. They are read in a thread, and only when a request would be rejected."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="key prefixes")
        self._reading: asyncio.Future[frozenset[str]] | None = None
        self._read_at = -FRESH_SECONDS

    async def has(self, prefix: str) -> bool:
        """Return whether a valid key has this prefix. Return False if the prefixes can't be read in time."""
        now = time.monotonic()
        is_read = self._reading is None or self._reading.done()
        if is_read and now - self._read_at > FRESH_SECONDS:
            self._read_at = now
            self._reading = asyncio.get_running_loop().run_in_executor(self._executor, _prefixes_in_use)
        assert self._reading is not None
        if not self._reading.done():
            await asyncio.wait({self._reading}, timeout=READ_TIMEOUT)
        return self._reading.done() and prefix in self._reading.result()


def _prefixes_in_use() -> frozenset[str]:
    try:
        return frozenset(ApiKey.objects.prefixes_in_use(MAX_PREFIXES))
    except DatabaseError:
        return frozenset()
    finally:
        connection.close()


class AnonymousThrottle:
    def __init__(self) -> None:
        self._buckets, self._prefixes = TokenBuckets(), KeyPrefixes()

    @asynccontextmanager
    async def admit(self, scope: "Scope") -> AsyncIterator[None]:
        """Admit a request for the duration of the block. Raise `Refused` if the rate limit is exceeded."""
        secret = credential_of(scope)
        if scope["path"].startswith(settings.STATIC_URL) or secret in VERIFIED:
            yield
            return
        name = await self._count(scope, secret)
        yield
        if secret in VERIFIED:
            self._buckets.refund(name)

    async def _count(self, scope: "Scope", secret: str) -> str:
        name = address_range(address_of(scope))
        if not (wait := self._buckets.acquire(name)):
            return name
        key = _PREFIX.match(secret)
        if key and await self._prefixes.has(key[1]) and not self._buckets.acquire(f"key {key[1]}"):
            return f"key {key[1]}"
        text = "Too many requests without a valid API key or login from this IP address. Try again later."
        raise Refused(429, "throttled", text, retry_after=math.ceil(wait))


def address_of(scope: "Scope") -> str:
    """Return the IP address of a request, or a blank string if its connection has none."""
    peer = (scope.get("client") or ("",))[0]
    return client_address(peer, _header(scope, b"x-forwarded-for"))


def credential_of(scope: "Scope") -> str:
    """Return the key or the login of a request, or a blank string."""
    kind, _, key = _header(scope, b"authorization").partition(" ")
    if kind:
        return key.strip() if kind.lower() == "bearer" else ""
    try:
        login = SimpleCookie(_header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return login.value if login else ""


def _header(scope: "Scope", name: bytes) -> str:
    """Return a header. If it is repeated, return the last one, which the nearest proxy added."""
    return next((value.decode("latin-1") for found, value in reversed(scope["headers"]) if found == name), "")
