"""The items of what recall found, kept by a web process: the next question about a person finds many of the same.

As with live turns (`kept_turns`), nothing is served from here unseen: each search reads what it finds, and an item is
taken from here only where that is the same to the letter. What is spared is to write it down, to count it and to find
its words.
"""

from collections.abc import Callable
from zoneinfo import ZoneInfo

from moments_app.context.bounded_store import BoundedStore
from moments_app.context.item import Item
from moments_app.recall.results import Result

MOST_CHARS = 5_000_000  # of texts, over all people; each is there again in every format that it was written in
LINE_CHARS = 500  # that a line counts beside its text
READ = Result._fields.index("score")  # fields of a result that were read; the others say what a search makes of it


class KeptLines:
    """Items by person, time zone and address; those that were made first go first."""

    def __init__(self) -> None:
        self._lines: BoundedStore[tuple[int, str, str], tuple[tuple[object, ...], Item]] = BoundedStore()

    def item(self, person: int, zone: ZoneInfo, result: Result, make: Callable[[Result, ZoneInfo], Item]) -> Item:
        """Return the item of a result, and keep it.

        Args:
            person: primary key.
            zone: in which the item has its time.
            result: as it was just read.
            make: makes an item of what was read; without what the search makes of it.
        """
        address, read = (person, zone.key, result.ref), result[:READ]
        kept = self._lines.get(address)
        if kept is not None and kept[0] == read:
            return kept[1]
        item = make(result, zone)
        item.word_set, item.local_day  # noqa: B018 (worked out here, and kept with the item)
        self._lines.keep(address, (read, item), LINE_CHARS + len(item.text), most=MOST_CHARS)
        return item

    def __len__(self) -> int:
        return len(self._lines)


KEPT_LINES = KeptLines()
