"""The items of what recall found, kept by a web process: the next question about a person finds many of the same.

As with live turns (`kept_turns`), nothing is served from here unseen: each search reads what it finds, and an item is
taken from here only where that is the same to the letter. What is spared is to write it down, to count it and to find
its words.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings

from moments_app.context.item import Item
from moments_app.recall.results import Result

MOST_CHARS = 5_000_000  # of texts, over all people; each is there again in every format that it was written in
LINE_CHARS = 500  # that a line counts beside its text
READ = Result._fields.index("score")  # fields of a result that were read; the others say what a search makes of it


class _Kept(NamedTuple):
    read: tuple[object, ...]
    item: Item
    kept_at: float

    @property
    def chars(self) -> int:
        return LINE_CHARS + len(self.item.text)


class KeptLines:
    """Items by person and address; those that were made first go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: OrderedDict[tuple[int, str], _Kept] = OrderedDict()
        self._chars = 0

    def item(self, person: int, result: Result, make: Callable[[Result], Item]) -> Item:
        """Return the item of a result, and keep it.

        Args:
            person: primary key.
            result: as it was just read.
            make: makes an item of what was read; without what the search makes of it.
        """
        address, read = (person, result.ref), result[:READ]
        kept = self._lines.get(address)
        if kept is not None and kept.read == read:
            return kept.item
        item = make(result)
        item.words  # noqa: B018 (worked out here, and kept with the item)
        self._keep(address, _Kept(read, item, time.monotonic()))
        return item

    def _keep(self, address: tuple[int, str], kept: _Kept) -> None:
        oldest = kept.kept_at - settings.MEMORY_CONTEXT.sync_minutes * 60
        with self._lock:
            self._drop(address)
            self._lines[address] = kept
            self._chars += kept.chars
            while self._lines and (self._chars > MOST_CHARS or self._first.kept_at <= oldest):
                self._drop(next(iter(self._lines)))

    @property
    def _first(self) -> _Kept:
        return next(iter(self._lines.values()))

    def _drop(self, address: tuple[int, str]) -> None:
        if (kept := self._lines.pop(address, None)) is not None:
            self._chars -= kept.chars

    def __len__(self) -> int:
        return len(self._lines)


KEPT_LINES = KeptLines()
