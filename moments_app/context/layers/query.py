"""`query`: the current message."""

from collections.abc import Sequence

from moments_app.context.input import Scene
from moments_app.context.item import Item

STATIC = False


def items(scene: Scene) -> Sequence[Item]:
    """As it was asked."""
    return [Item(scene.query, role="user")] if scene.query else []
