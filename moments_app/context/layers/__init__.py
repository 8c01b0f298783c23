"""The layers of a context, in the order in which they stand. A new one is a module here and a line in `LAYERS`.

What lasts long comes first and what changes with the query last, so that providers' prompt caches know the beginning.

A module has `items(source)`, and says by `STATIC` whether its items are the same until the stamp of the input changes.
"""

from collections.abc import Sequence
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

    def items(self, source: ContextInput) -> Sequence[Item]:
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
# `now` changes with the clock, so it is there only when asked for.
DEFAULT = tuple(name for name in ORDER if name != "now")
ALWAYS = ("policy", "query")
