"""What a web process keeps for the next context: as many characters as have room, and no longer than `SYNC_MINUTES`."""

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from django.conf import settings

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Kept(NamedTuple, Generic[V]):
    value: V
    chars: int
    kept_at: float


class BoundedStore(Generic[K, V]):
    """Values by key, of any thread; those that were kept first go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._chars = 0

    def get(self, key: K) -> V | None:
        """Return what is kept there; None for nothing."""
        kept = self._kept.get(key)
        return kept.value if kept else None

    def forget(self, keys: Iterable[K]) -> None:
        """Let go of what is kept under these keys."""
        with self._lock:
            for key in keys:
                self._drop(key)

    def keep(self, key: K, value: V, chars: int, *, most: int) -> None:
        """Keep a value in place of what was there, and let go of what is old or has no room.

        Args:
            key: that it is asked for by.
            value: to be kept.
            chars: that it counts.
            most: characters that are kept, over all keys.
        """
        with self._lock:
            self._drop(key)
            self._kept[key] = _Kept(value, chars, time.monotonic())
            self._chars += chars
            while self._kept and (self._chars > most or self._is_old(self._first)):
                self._drop(next(iter(self._kept)))

    def _is_old(self, kept: _Kept[V]) -> bool:
        return time.monotonic() - kept.kept_at >= settings.MEMORY_CONTEXT.sync_minutes * 60

    @property
    def _first(self) -> _Kept[V]:
        return next(iter(self._kept.values()))

    def _drop(self, key: K) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._chars -= kept.chars

    def __len__(self) -> int:
        return len(self._kept)
