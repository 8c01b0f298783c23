"""`summary`: the latest completed rolling summary of the session."""

from collections.abc import Sequence

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.models import Summary


def items(source: ContextInput) -> Sequence[Item]:
    """Return the latest completed summary. Failed and unfinished summaries are ignored."""
    summary = Summary.objects.latest_completed(source.session)
    if summary is None:
        return []
    return [
        Item(
            summary.text,
            ref=f"rem://sessions/{source.session.session_id}/summary",
            source_sequences=(summary.start_sequence, summary.end_sequence),
            time=summary.completed_at,
        )
    ]


add_layer(
    Layer(
        "summary",
        items,
        place=40,
        tag="CurrentConversation",
        title="This conversation so far",
        ceiling=0.15,
        turn=3,
        is_static=True,
    )
)
