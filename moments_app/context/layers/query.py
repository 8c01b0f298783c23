"""`query`: the current message."""

from collections.abc import Sequence

from moments_app.context.input import ContextInput
from moments_app.context.item import Item

STATIC = False


def items(source: ContextInput) -> Sequence[Item]:
    """Return the message unchanged."""
    return [Item(source.query, role="user")] if source.query else []
