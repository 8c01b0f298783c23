"""`query`: the current message."""

from collections.abc import Sequence

from moments_app.recall.item import Item
from moments_app.recall.scene import Scene

STATIC = False


def items(scene: Scene) -> Sequence[Item]:
    """As it was asked."""
    return [Item(scene.query, role="user")] if scene.query else []
