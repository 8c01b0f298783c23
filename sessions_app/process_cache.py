"""Bounded, thread-safe caches in the process."""

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import wraps
from typing import Generic, TypeVar, TypeVarTuple

from cachetools import Cache, LRUCache, TTLCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Arguments = TypeVarTuple("Arguments")


def cached_by_hash(most: int) -> Callable[[Callable[[*Arguments], V]], Callable[[*Arguments], V]]:
    """Cache a function's results by the hash of its arguments, so that no text is cached.

    Args:
        most: The maximum number of results. A full cache is emptied, because tracking the use of each result would take
            longer than some of the functions.
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
            if len(known) >= most:
                known.clear()
            known[key] = result
            return result

        return found

    return decorated


class ProcessCache(Generic[K, V]):
    """A cache that evicts the least recently used entries.

    Args:
        most: The maximum number of entries, or the maximum sum of their sizes.
        seconds: How long an entry is valid. None: until it is evicted.
        size_of: Returns the size of a value.
    """

    def __init__(self, most: int, *, seconds: float | None = None, size_of: Callable[[V], float] | None = None) -> None:
        self._lock = threading.Lock()
        self._entries: Cache[K, V] = (
            LRUCache(most, size_of) if seconds is None else TTLCache(most, seconds, getsizeof=size_of)
        )

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Store a value. An existing value is replaced."""
        with self._lock:
            self._entries.pop(key, None)
            with suppress(ValueError):  # the value is larger than the cache
                self._entries[key] = value

    def drop(self, key: K) -> None:
        """Remove the value of a key, if there is one."""
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
