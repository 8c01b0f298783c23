"""`retrieved`: what of the person's memory answers the query, from this session or any other."""

from collections.abc import Sequence

from django.conf import settings

from moments_app.recall.item import Item
from moments_app.recall.scene import Scene
from moments_app.recall.search import Result, recall
from sessions_app.shorten import shorten_middle

STATIC = False
MAX_CHARS = 600  # of a result that stand in a context
SEEN = 15  # results that other layers may have as well


def items(scene: Scene) -> Sequence[Item]:
    """The best first, more than are wanted: `assemble` leaves out what stands in another layer."""
    limit = settings.MEMORY_CONTEXT.retrieved_limit
    if scene.question is None or not limit:
        return []
    found = recall(scene.user, scene.session.agent_id, scene.question, most=limit + SEEN)
    # The current message may have been appended already, and nothing answers a message so well as itself.
    return [_item(result) for result in found if not scene.query.startswith(result.content)]


def _item(result: Result) -> Item:
    said = f"{result.role}: {result.content}" if result.role else result.content
    text = shorten_middle(said, MAX_CHARS, hint=result.ref)
    sequences = None if result.sequence is None else (result.sequence, result.sequence)
    return Item(f"{text} ({result.time:%Y-%m-%d})", ref=result.ref, source_sequences=sequences, time=result.time)
