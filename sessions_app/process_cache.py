"""Bounded, thread-safe caches in the process, and the keys and logins that this process has verified."""

import hashlib
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import wraps
from typing import Generic, TypeVar, TypeVarTuple

from cachetools import Cache, LRUCache, TTLCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Arguments = TypeVarTuple("Arguments")

MAX_VERIFIED = 50_000  # maximum number of keys and logins


def cached_by_hash(max_size: int) -> Callable[[Callable[[*Arguments], V]], Callable[[*Arguments], V]]:
    """Cache a function's results by the hash of its arguments, so that the cache stores no texts.

    When the cache is full, it is emptied. Tracking the use of each result would take longer than some of the functions.
    """

    def decorated(function: Callable[[*Arguments], V]) -> Callable[[*Arguments], V]:
        known: dict[int, V] = {}

        @wraps(function)
        def found(*arguments: *Arguments) -> V:
            key = hash(arguments)
            try:
                return known[key]
            except KeyError:
                result = function(*arguments)
            if len(known) >= max_size:
                known.clear()
            known[key] = result
            return result

        return found

    return decorated


class ProcessCache(Generic[K, V]):
    """A cache that evicts the least recently used entries, and entries older than `seconds`.

    `max_size` limits the number of entries or, with `size_of`, the sum of their sizes.
    """

    def __init__(
        self, max_size: int, *, seconds: float | None = None, size_of: Callable[[V], float] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._entries: Cache[K, V] = (
            LRUCache(max_size, size_of) if seconds is None else TTLCache(max_size, seconds, getsizeof=size_of)
        )

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._entries.pop(key, None)
            with suppress(ValueError):  # raised if the value is larger than the cache
                self._entries[key] = value

    def drop(self, key: K) -> None:
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def __contains__(self, key: K) -> bool:
        with self._lock:
            return key in self._entries

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)


class VerifiedSecrets:
    """The API keys and logins that this process has verified.

    Requests with one of them skip the anonymous rate limit. Only hashes are stored, with the application of each key
    (None for the first application).
    """

    def __init__(self) -> None:
        self._applications: ProcessCache[bytes, int | None] = ProcessCache(MAX_VERIFIED)

    def add(self, secret: str, application: int | None = None) -> None:
        self._applications.put(hash_of(secret), application)

    def drop(self, secret: str) -> None:
        self._applications.drop(hash_of(secret))

    def application_of(self, secret: str) -> int | None:
        """Return the primary key of a key's application. None for the first application, and for an unknown key."""
        return self._applications.get(hash_of(secret))

    def __contains__(self, secret: str) -> bool:
        return hash_of(secret) in self._applications


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()


VERIFIED = VerifiedSecrets()
