"""The layers of a context, in their order. To add one, add a module here and a line in `LAYERS`.

Lasting text comes first and text that depends on the query last, so that providers' prompt caches match the beginning.

Each module has `items(source)`, and `STATIC`, which says whether its items stay the same until the stamp of the input
changes.
"""

from collections.abc import Iterable
from typing import Protocol

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import (
    collective,
    conversation,
    entities,
    hot_turns,
    moments,
    now,
    policy,
    query,
    retrieved,
    summary,
    user,
)


class Layer(Protocol):
    """A module of this package."""

    STATIC: bool

    def items(self, source: ContextInput) -> Iterable[Item]:
        """Return the items of the layer, in order."""


ORDER = (
    "policy",
    "collective",
    "user",
    "moments",
    "summary",
    "conversation",
    "hot_turns",
    "retrieved",
    "entities",
    "now",
    "query",
)
LAYERS: dict[str, Layer] = {
    "policy": policy,
    "collective": collective,
    "user": user,
    "moments": moments,
    "summary": summary,
    "conversation": conversation,
    "retrieved": retrieved,
    "entities": entities,
    "hot_turns": hot_turns,
    "now": now,
    "query": query,
}
# `now` changes with the clock, so it is only included on request.
DEFAULT = tuple(name for name in ORDER if name != "now")
ALWAYS = ("policy", "query")
