"""Cache the static layers of contexts in a web process, until the stamp of the input changes or a few minutes pass.

Items are cached together with their rendered text and token counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moments_app.context.item import Item
from sessions_app.process_cache import ProcessCache

MOST_CHARS = 5_000_000  # of texts, over all sessions; the cache also holds each text in every format that was rendered
KEPT_SECONDS = 300.0
ITEM_CHARS = 500  # added to the size of each item's text
Layers = Mapping[str, Sequence[Item]]


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
