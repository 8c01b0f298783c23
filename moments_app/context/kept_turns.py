"""The items of live turns, kept by a web process: the next context of a session has most of the same ones.

Nothing is served from here unseen: each context reads the turns anew, and takes an item from here only where the turn
is the same to the letter. What is spared is to make items of them, and to write and count those.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.conf import settings

from moments_app.context.input import LiveTurn
from moments_app.context.item import Item

MOST_CHARS = 5_000_000  # of texts, over all sessions; each is there again in every format that it was written in
TURN_CHARS = 500  # that a turn counts beside its text


@dataclass(frozen=True)
class _Kept:
    """The items of one session's turns, by sequence."""

    items: dict[int, tuple[LiveTurn, Item]]
    chars: int
    kept_at: float


class KeptTurns:
    """Items by session; those of a session that nobody asked for lately, or for longest, go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, _Kept] = OrderedDict()
        self._chars = 0

    def items(self, session: int, turns: Sequence[LiveTurn], make: Callable[[LiveTurn], Item]) -> list[Item]:
        """Return the items of a session's turns, and keep them.

        Args:
            session: primary key.
            turns: as they were just read.
            make: makes an item of a turn of this session.
        """
        kept = self._sessions.get(session)
        known = kept.items if kept else {}
        found: list[tuple[LiveTurn, Item]] = []
        for turn in turns:
            there = known.get(turn.sequence)
            found.append(there if there and there[0] == turn else (turn, make(turn)))
        self._keep(session, {turn.sequence: (turn, item) for turn, item in found if turn.payload is None})
        return [item for _turn, item in found]

    def _keep(self, session: int, items: dict[int, tuple[LiveTurn, Item]]) -> None:
        seconds = settings.MEMORY_CONTEXT.sync_minutes * 60
        now = time.monotonic()
        chars = TURN_CHARS * len(items) + sum([len(turn.content) for turn, _item in items.values()])
        with self._lock:
            self._drop(session)
            self._sessions[session] = _Kept(items, chars, now)
            self._chars += chars
            while self._sessions and (self._chars > MOST_CHARS or self._oldest.kept_at + seconds <= now):
                self._drop(next(iter(self._sessions)))

    @property
    def _oldest(self) -> _Kept:
        return next(iter(self._sessions.values()))

    def _drop(self, session: int) -> None:
        if (kept := self._sessions.pop(session, None)) is not None:
            self._chars -= kept.chars

    def __len__(self) -> int:
        return len(self._sessions)


KEPT_TURNS = KeptTurns()
