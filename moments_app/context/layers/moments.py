"""`moments` and `summary`: what was said before the live window."""

from collections.abc import Sequence
from datetime import datetime

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.models import Moment, Summary
from moments_app.models.moment import LATEST_MOMENTS, MomentQuerySet
from sessions_app.models import Message


def moments(source: ContextInput) -> Sequence[Item]:
    """Return the checkpoint at the session's latest boundary and the latest moments, newest first.

    Without a boundary, return only where to look.
    """
    latest = list(_latest(source)[:LATEST_MOMENTS])
    event = Message.objects.boundaries_of(source.session).first()
    return [_checkpoint(source, event), *map(moment_item, latest)] if event else _hints(source, latest)


def _latest(source: ContextInput) -> MomentQuerySet:
    return Moment.objects.for_user(source.user).defer("search_vector", "detail").newest_first()


def _checkpoint(source: ContextInput, event: Message) -> Item:
    payload = event.payload if isinstance(event.payload, dict) else {}
    parts = [str(payload.get(name, "")) for name in ("summary", "recent_moments_summary", "context", "recovery_hint")]
    return Item(
        " ".join(part for part in parts if part),
        ref=f"rem://sessions/{source.session.session_id}/messages/{event.sequence}",
        source_sequences=(0, event.sequence),
        time=event.created_at,
    )


def moment_item(moment: Moment) -> Item:
    """Return the line of a moment."""
    return Item(
        f"{moment.key}: {moment.summary}",
        ref=moment.uri,
        source_sequences=(moment.first_sequence, moment.last_sequence),
        time=moment.ends_at,
    )


def _hints(source: ContextInput, latest: Sequence[Moment]) -> list[Item]:
    if not latest:
        return []
    keys = ", ".join(moment.uri for moment in latest)
    profile = source.user.uri
    return [Item(f"This person's profile can be read at {profile}, their latest moments at {keys}.", profile)]


def moments_then(source: ContextInput, as_of: datetime) -> Sequence[Item]:
    """Return the moments that were the latest then."""
    return [moment_item(moment) for moment in _latest(source).filter(ends_at__lte=as_of)[:LATEST_MOMENTS]]


def summary(source: ContextInput) -> Sequence[Item]:
    """Return the latest completed rolling summary of the session. Failed and unfinished summaries are ignored."""
    latest = Summary.objects.latest_completed(source.session)
    if latest is None:
        return []
    return [
        Item(
            latest.text,
            ref=f"rem://sessions/{source.session.session_id}/summary",
            source_sequences=(latest.start_sequence, latest.end_sequence),
            time=latest.completed_at,
        )
    ]


add_layer(
    Layer(
        "moments",
        moments,
        place=30,
        tag="Moments",
        title="Moments",
        ceiling=0.10,
        turn=2,
        is_static=True,
        items_then=moments_then,
    )
)
add_layer(
    Layer(
        "summary",
        summary,
        place=40,
        tag="CurrentConversation",
        title="This conversation so far",
        ceiling=0.15,
        turn=3,
        is_static=True,
    )
)
