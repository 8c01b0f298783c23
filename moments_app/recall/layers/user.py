"""`user`: what is known of the person: their profile and their stream."""

from collections.abc import Sequence

from moments_app.models import MemoryStream
from moments_app.recall.item import Item
from moments_app.recall.layers.streams import items_of
from moments_app.recall.scene import Scene

STATIC = True


def items(scene: Scene) -> Sequence[Item]:
    """The profile: its summary, interests, topics; then what the agent has noticed of them."""
    user = scene.user
    lines = [
        user.summary.strip(),
        f"Interests: {', '.join(user.interests)}" if user.interests else "",
        f"Preferred topics: {', '.join(user.preferred_topics)}" if user.preferred_topics else "",
    ]
    profile = [Item(line, ref=user.uri, time=user.updated_at) for line in lines if line]
    return [*profile, *items_of(scene, MemoryStream.Type.USER)]
