"""The static layers of contexts, kept by a web process until the stamp of the input changes, or for a few minutes.

They are kept as they are: whoever takes them finds their items written down and counted.
"""

from collections.abc import Mapping, Sequence

from moments_app.context.bounded_store import BoundedStore
from moments_app.context.item import Item

MOST_CHARS = 5_000_000  # of texts, over all sessions; each is there again in every format that it was written in
ITEM_CHARS = 500  # that an item counts beside its text
Layers = Mapping[str, Sequence[Item]]


class KeptLayers(BoundedStore[int, tuple[str, Layers]]):
    """Layers by the primary key of a session, which no two sessions ever share."""

    def under(self, session: int, stamp: str) -> Layers | None:
        """Return the layers that were kept under a stamp, unless that is too long ago."""
        kept = self._kept.get(session)
        if kept is None or self._is_old(kept):
            return None
        kept_under, layers = kept.value
        return layers if kept_under == stamp else None

    def keep_under(self, session: int, stamp: str, layers: Layers) -> None:
        """Keep the layers that were built under a stamp."""
        items = [item for layer in layers.values() for item in layer]
        chars = sum([ITEM_CHARS + len(item.text) for item in items])
        self.keep(session, (stamp, layers), chars, most=MOST_CHARS)


KEPT_LAYERS = KeptLayers()
