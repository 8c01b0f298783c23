"""`collective`: the lessons and other knowledge that an agent has learned and keeps in its shards.

It contains what this person taught the agent, and released items that it learned from others.
"""

from collections.abc import Sequence

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.context.layers.streams import items_of
from moments_app.models import MemoryStream


def items(source: ContextInput) -> Sequence[Item]:
    """Return the items of active shards, both the agent's own and those of every agent, without duplicates."""
    found = items_of(source, MemoryStream.Type.AGENT)
    return list({(item.name, item.text): item for item in reversed(found)}.values())[::-1]


add_layer(
    Layer(
        "collective",
        items,
        place=10,
        tag="CollectiveMemory",
        title="Collective memory",
        ceiling=0.10,
        turn=4,
        is_static=True,
    )
)
