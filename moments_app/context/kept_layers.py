"""The static layers of contexts, kept by a web process until the stamp of the input changes, or for a few minutes.

They are kept as they are: whoever takes them finds their items written down and counted.
"""

import time
from collections.abc import Mapping, Sequence

from django.conf import settings

from moments_app.context.bounded_store import BoundedStore
from moments_app.context.item import Item

MOST_CHARS = 5_000_000  # of texts, over all sessions; each is there again in every format that it was written in
ITEM_CHARS = 500  # that an item counts beside its text
Layers = Mapping[str, Sequence[Item]]


class KeptLayers(BoundedStore[int, tuple[str, float, Layers]]):
    """Layers by the primary key of a session, which no two sessions ever share."""

    def under(self, session: int, stamp: str) -> Layers | None:
        """Return the layers that were kept under a stamp, unless that is too long ago."""
        kept_under, since, layers = self.get(session) or ("", 0.0, None)
        is_fresh = time.monotonic() - since < settings.MEMORY_CONTEXT.sync_minutes * 60
        return layers if kept_under == stamp and is_fresh else None

    def keep_under(self, session: int, stamp: str, layers: Layers) -> None:
        """Keep the layers that were built under a stamp."""
        items = [item for layer in layers.values() for item in layer]
        chars = sum([ITEM_CHARS + len(item.text) for item in items])
        self.keep(session, (stamp, time.monotonic(), layers), chars, most=MOST_CHARS)


KEPT_LAYERS = KeptLayers()
