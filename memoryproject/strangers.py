"""Calls of strangers: of those without a key or login that has proven right, so many a second from one address.

They are counted before anything is done for them, a body read or the database asked. A key that proves right gets back
what its first call cost and is no stranger from then on. While an address has used up what it may, a key that was
issued still comes in from there: its prefix is known, and wrong secrets for it count by themselves.
"""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http.cookies import CookieError, SimpleCookie

from cachetools import LRUCache
from django.conf import settings
from django.db import DatabaseError, connection
from starlette.types import Scope

from memoryproject.addresses import client_address, subscriber
from memoryproject.refused import Refused
from sessions_app.models import ApiKey
from sessions_app.proven import PROVEN

AT_ONCE = 10  # seconds' worth of calls that may come at once
ADDRESSES = 10_000  # that are kept; whoever was not heard of for longest is forgotten, and may call again
PREFIXES = 100_000  # of keys, those used last
FRESH_SECONDS = 5.0  # for which they are good
PATIENCE = 0.5  # seconds that somebody waits for them

_PREFIX = re.compile(r"mem_([0-9a-z]{1,16})_")


class Buckets:
    """A bucket of calls for each name, filled at `ANONYMOUS_RATE` a second; for one event loop."""

    def __init__(self) -> None:
        self._left: LRUCache[str, tuple[float, float]] = LRUCache(ADDRESSES)

    def take(self, name: str) -> float:
        """Take a call; return 0, or the seconds until there is one."""
        rate, now = settings.ANONYMOUS_RATE, time.monotonic()
        full = float(rate * AT_ONCE)
        left, at = self._left.get(name, (full, now))
        left = min(full, left + (now - at) * rate)
        wait = max(0.0, (1 - left) / rate)
        self._left[name] = left if wait else left - 1, now
        return wait

    def give_back(self, name: str) -> None:
        """Put back what was taken for somebody who is no stranger."""
        left, at = self._left.get(name, (0.0, time.monotonic()))
        self._left[name] = left + 1, at


class Issued:
    """The prefixes of the keys that there are: read in a thread, and only while strangers are refused."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="issued")
        self._reading: asyncio.Future[frozenset[str]] | None = None
        self._read_at = -FRESH_SECONDS

    async def has(self, prefix: str) -> bool:
        """Tell whether a valid key begins so, as far as that can be told in a moment."""
        now = time.monotonic()
        is_read = self._reading is None or self._reading.done()
        if is_read and now - self._read_at > FRESH_SECONDS:
            self._read_at = now
            self._reading = asyncio.get_running_loop().run_in_executor(self._executor, _issued)
        assert self._reading is not None
        if not self._reading.done():
            await asyncio.wait({self._reading}, timeout=PATIENCE)
        return self._reading.done() and prefix in self._reading.result()


def _issued() -> frozenset[str]:
    try:
        return frozenset(ApiKey.objects.prefixes_in_use(PREFIXES))
    except DatabaseError:
        return frozenset()
    finally:
        connection.close()


class Strangers:
    """Lets strangers in, so many as may come."""

    def __init__(self) -> None:
        self._buckets, self._issued = Buckets(), Issued()

    @asynccontextmanager
    async def one(self, scope: Scope) -> AsyncIterator[None]:
        """Let in whoever sends a request, for as long as the block runs.

        Raises:
            Refused: strangers from there have called too often.
        """
        secret = secret_of(scope)
        if scope["path"].startswith(settings.STATIC_URL) or secret in PROVEN:
            yield
            return
        name = await self._counted(scope, secret)
        yield
        if secret in PROVEN:
            self._buckets.give_back(name)

    async def _counted(self, scope: Scope, secret: str) -> str:
        """Return the name under which a call was counted."""
        name = subscriber(address_of(scope))
        if not (wait := self._buckets.take(name)):
            return name
        key = _PREFIX.match(secret)
        if key and await self._issued.has(key[1]) and not self._buckets.take(f"key {key[1]}"):
            return f"key {key[1]}"
        text = "Too many requests without a valid API key or login from this IP address. Try again later."
        raise Refused(429, "throttled", text, retry_after=math.ceil(wait))


def address_of(scope: Scope) -> str:
    """Return the address that a request comes from; blank where its connection has none."""
    peer = (scope.get("client") or ("",))[0]
    return client_address(peer, _header(scope, b"x-forwarded-for"))


def secret_of(scope: Scope) -> str:
    """Return the key of a request, or else its login; blank where it has neither."""
    kind, _, key = _header(scope, b"authorization").partition(" ")
    if kind:
        return key.strip() if kind.lower() == "bearer" else ""
    try:
        login = SimpleCookie(_header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return login.value if login else ""


def _header(scope: Scope, name: bytes) -> str:
    """Return a header; of several the last, which is nearest."""
    return next((value.decode("latin-1") for found, value in reversed(scope["headers"]) if found == name), "")
