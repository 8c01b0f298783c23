"""`collective`: what an agent has learned, kept in its shards; lessons first.

That is what this person taught it, and of what others did what was released.
"""

from collections.abc import Sequence

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers.streams import items_of
from moments_app.models import MemoryStream

STATIC = True


def items(source: ContextInput) -> Sequence[Item]:
    """Return the items of each active shard of the agent and of every agent; one that both have, once."""
    found = items_of(source, MemoryStream.Type.AGENT)
    return list({(item.name, item.text): item for item in reversed(found)}.values())[::-1]
