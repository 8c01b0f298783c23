"""`query`: the current message."""

from collections.abc import Sequence

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer


def items(source: ContextInput) -> Sequence[Item]:
    """Return the message unchanged."""
    return [Item(source.query, role="user")] if source.query else []


add_layer(
    Layer(
        "query", items, place=100, tag="Query", title="Current message", items_then=lambda source, _as_of: items(source)
    )
)
