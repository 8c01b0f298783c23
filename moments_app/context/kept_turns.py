"""Cache the items of live turns in a web process, because a session's next context has mostly the same turns.

Each context reads the turns from the database, and uses a cached item only if the turn is identical. This saves
creating and rendering the item and counting its tokens.
"""

from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo

from moments_app.context.input import LiveTurn
from moments_app.context.item import Item
from moments_app.context.kept_layers import KEPT_SECONDS
from sessions_app.process_cache import ProcessCache

MOST_CHARS = 5_000_000  # of texts, over all sessions; the cache also holds each text in every format that was rendered
TURN_CHARS = 500  # added to the size of each turn's text
Known = dict[int, tuple[LiveTurn, Item]]  # the items of one session's turns, by sequence


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
    return TURN_CHARS * len(items) + sum([len(turn.content) for turn, _item in items.values()])


KEPT_TURNS = KeptTurns()
