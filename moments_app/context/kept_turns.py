"""The items of live turns, kept by a web process: the next context of a session has most of the same ones.

Nothing is served from here unseen: each context reads the turns anew, and takes an item from here only where the turn
is the same to the letter. What is spared is to make items of them, and to write and count those.
"""

from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo

from moments_app.context.bounded_store import BoundedStore
from moments_app.context.input import LiveTurn
from moments_app.context.item import Item

MOST_CHARS = 5_000_000  # of texts, over all sessions; each is there again in every format that it was written in
TURN_CHARS = 500  # that a turn counts beside its text
Known = dict[int, tuple[LiveTurn, Item]]  # the items of one session's turns, by sequence


class KeptTurns:
    """Items by session and time zone; those that were kept first go first."""

    def __init__(self) -> None:
        self._sessions: BoundedStore[tuple[int, str], Known] = BoundedStore()

    def items(
        self, session: int, zone: ZoneInfo, turns: Sequence[LiveTurn], make: Callable[[LiveTurn], Item]
    ) -> list[Item]:
        """Return the items of a session's turns, and keep them.

        Args:
            session: primary key.
            zone: in which the items have their times.
            turns: as they were just read.
            make: makes an item of a turn of this session.
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
            self._keep(address, {turn.sequence: (turn, item) for turn, item in found if turn.payload is None})
        return [item for _turn, item in found]

    def _keep(self, address: tuple[int, str], items: Known) -> None:
        chars = TURN_CHARS * len(items) + sum([len(turn.content) for turn, _item in items.values()])
        self._sessions.keep(address, items, chars, most=MOST_CHARS)

    def __len__(self) -> int:
        return len(self._sessions)


KEPT_TURNS = KeptTurns()
