"""`conversation`: the facts of this session."""

from collections.abc import Sequence

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.context.layers.streams import items_of
from moments_app.models import MemoryStream


def items(source: ContextInput) -> Sequence[Item]:
    """Return the items of the session's stream, oldest first."""
    return items_of(source, MemoryStream.Type.SESSION)


add_layer(
    Layer(
        "conversation",
        items,
        place=50,
        tag="ConversationFacts",
        title="Facts of this conversation",
        ceiling=0.10,
        turn=6,
        is_static=True,
    )
)
