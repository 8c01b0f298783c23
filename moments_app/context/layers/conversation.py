"""`conversation`: the facts of this session."""

from collections.abc import Sequence

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers.streams import items_of
from moments_app.models import MemoryStream

STATIC = True


def items(source: ContextInput) -> Sequence[Item]:
    """Return the items of the session's stream, oldest first."""
    return items_of(source, MemoryStream.Type.SESSION)
