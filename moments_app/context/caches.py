"""Caches of parts of contexts in a web process. Items are cached with their rendered text and token counts.

Static layers are cached until the stamp of the input changes or a few minutes pass. Live turns are cached because a
session's next context has mostly the same turns. Each context reads the turns from the database, and uses a cached item
only if the turn is identical.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from moments_app.context.input import LiveTurn
from moments_app.context.item import Item
from sessions_app.process_cache import ProcessCache

MOST_CHARS = 5_000_000  # of texts in each cache; it also holds each text in every format that was rendered
KEPT_SECONDS = 300.0
ITEM_CHARS = 500  # added to the size of each item's text
TURN_CHARS = 500  # added to the size of each turn's text
Layers = Mapping[str, Sequence[Item]]  # by name
Known = dict[int, tuple[LiveTurn, Item]]  # the items of one session's turns, by sequence


class _Kept(NamedTuple):
    stamp: str
    layers: Layers

    @property
    def chars(self) -> int:
        return sum([ITEM_CHARS + len(item.text) for layer in self.layers.values() for item in layer])


class KeptLayers:
    """Layers by the primary key of a session, which is never reused."""

    def __init__(self) -> None:
        self._sessions: ProcessCache[int, _Kept] = ProcessCache(
            MOST_CHARS, seconds=KEPT_SECONDS, size_of=lambda kept: kept.chars
        )

    def under(self, session: int, stamp: str) -> Layers | None:
        """Return a session's layers if they were cached with this stamp."""
        kept = self._sessions.get(session)
        return kept.layers if kept and kept.stamp == stamp else None

    def keep_under(self, session: int, stamp: str, layers: Layers) -> None:
        """Cache the layers that were built with a stamp."""
        self._sessions.put(session, _Kept(stamp, layers))

    def forget(self, sessions: Iterable[int]) -> None:
        """Remove the layers of sessions."""
        for session in sessions:
            self._sessions.drop(session)


KEPT_LAYERS = KeptLayers()


class KeptTurns:
    """Items by session and time zone."""

    def __init__(self) -> None:
        self._sessions: ProcessCache[tuple[int, str], Known] = ProcessCache(
            MOST_CHARS, seconds=KEPT_SECONDS, size_of=_chars
        )

    def items(
        self, session: int, zone: ZoneInfo, turns: Sequence[LiveTurn], make: Callable[[LiveTurn], Item]
    ) -> list[Item]:
        """Return the items of a session's turns, and cache them.

        Args:
            session: primary key.
            zone: the time zone of the items' times.
            turns: the turns that were just read.
            make: creates an item from a turn of this session.
        """
        address = (session, zone.key)
        known = self._sessions.get(address) or {}
        found: list[tuple[LiveTurn, Item]] = []
        is_known = len(turns) >= len(known)
        for turn in turns:
            there = known.get(turn.sequence)
            if there is None or there[0] != turn:
                there, is_known = (turn, make(turn)), False
            found.append(there)
        if not is_known:
            kept = {turn.sequence: (turn, item) for turn, item in found if turn.payload is None}
            self._sessions.put(address, kept)
        return [item for _turn, item in found]

    def __len__(self) -> int:
        return len(self._sessions)


def _chars(items: Known) -> int:
    return TURN_CHARS * len(items) + sum([len(item.text) for _turn, item in items.values()])


KEPT_TURNS = KeptTurns()
