"""Partition events: boundaries in a session, with a text for the model that reads the session."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Self

from django.db import transaction
from django.utils import timezone

from moments_app.engines.calls.moments import RECENT_MOMENTS
from moments_app.models import Moment
from moments_app.models.moment import LATEST_MOMENTS
from moments_app.turns import platform_text
from sessions_app.models import Message, Session
from sessions_app.text.length import estimate_tokens

TOOL_NAME = "session_partition"
DIGEST, CLEARED = "session_digest", "session_cleared"
TOPICS_NAMED = 5
RECOVERY_HINT = (
    "This is a checkpoint: what was said before it is remembered as moments. Read rem://moments/key/{key} for the "
    "detail of one; each moment names its predecessors in previous_moment_keys, so the chain can be walked backwards."
)


@dataclass(frozen=True)
class PartitionEvent:
    """A partition event that is not stored yet: its type, and its own fields of the payload."""

    session: Session
    partition_type: str
    fields: dict[str, object]
    role: str = Message.Role.TOOL

    @classmethod
    def of_build(cls, moments: Sequence[Moment], *, journey: str, session: Session) -> Self:
        """Return the event for a build of moments.

        Args:
            moments: the stored moments of the build, oldest first.
            journey: the person's journey, including these moments.
        """
        count = sum(moment.last_sequence - moment.first_sequence + 1 for moment in moments)
        topics = list(dict.fromkeys(tag for moment in moments for tag in moment.topic_tags[:2]))[:TOPICS_NAMED]
        about = f", about {', '.join(topics)}" if topics else ""
        fields: dict[str, object] = {
            "moment_keys": [moment.key for moment in moments],
            "recent_moments_summary": journey,
            "messages_compressed": count,
            "summary": f"{count} turns became {len(moments)} moment{'s' * (len(moments) != 1)}{about}.",
        }
        return cls(session, "moment_compression", fields)

    @classmethod
    def of_digest(cls, context: str, lessons: Sequence[str], turns: range, *, session: Session, cleared: bool) -> Self:
        """Return the event for a digest. It is a system message, which a client sends before all others.

        Args:
            context: the information that a model needs to continue.
            turns: the sequences of the replaced turns.
            cleared: whether the session is idle, so that the live window is empty.
        """
        fields: dict[str, object] = {
            "context": context,
            "lessons": list(lessons),
            "first_sequence": turns.start,
            "last_sequence": turns.stop - 1,
            "messages_compressed": len(turns),
        }
        return cls(session, CLEARED if cleared else DIGEST, fields, Message.Role.SYSTEM)

    def leave(self, sequence: int) -> Message:
        """Store the event right after the turn with this sequence, with the turn's time."""
        [message] = leave_each([(self, sequence)])
        return message

    def payload(self, latest: Sequence[str]) -> dict[str, object]:
        """Return the payload, including the fields common to all events.

        Args:
            latest: keys of the person's latest moments.
        """
        return {
            "partition_type": self.partition_type,
            "created_at": timezone.now().isoformat(),
            "user_key": self.session.user.user_id,
            **self.fields,
            "last_n_moment_keys": list(latest),
            "recovery_hint": RECOVERY_HINT,
        }


def leave_each(events: Sequence[tuple[PartitionEvent, int]]) -> list[Message]:
    """Store events in one person's sessions, each right after the turn with its sequence, with the turn's time."""
    user = events[0][0].session.user_id
    said_at = _said_at(user, [(event.session.pk, sequence) for event, sequence in events])
    keys = Moment.objects.filter(user_id=user).newest_first().values_list("key", flat=True)
    latest = list(keys[:LATEST_MOMENTS])
    left = [_message(event, sequence, latest, said_at[event.session.pk, sequence]) for event, sequence in events]
    platform_text.keep(user, [message.content for message in left])
    return Message.objects.bulk_create(left)


def _said_at(user: int, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], datetime]:
    sessions, sequences = zip(*places, strict=True)
    turns = Message.objects.turns().filter(user_id=user, session__in=sessions, sequence__in=sequences)
    rows = turns.values_list("session_id", "sequence", "created_at")
    return {(session, sequence): time for session, sequence, time in rows}


def _message(event: PartitionEvent, sequence: int, latest: Sequence[str], said_at: datetime) -> Message:
    payload = event.payload(latest)
    content = fenced(payload)
    return Message(
        session=event.session,
        user_id=event.session.user_id,
        sequence=sequence,
        kind=Message.Kind.PARTITION,
        role=event.role,
        tool_name=TOOL_NAME,
        content=content,
        payload=payload,
        tokens=estimate_tokens(content),
        created_at=said_at,
    )


def known_at(event: Message | None) -> str:
    """Return the known data before a partition event: the context of a digest, or the summaries of moments.

    The text depends only on the event's own session. So withdrawals in other sessions don't affect data derived from
    this text.
    """
    if event is None:
        return ""
    payload = event.payload if isinstance(event.payload, dict) else {}
    return str(payload.get("context") or _said_by_moments(event))


def _said_by_moments(event: Message) -> str:
    own = Moment.objects.filter(user_id=event.user_id, source_session_id=event.session_id)
    latest = own.filter(last_sequence__lte=event.sequence).order_by("-first_sequence")[:RECENT_MOMENTS]
    return "\n".join(f"{moment.ends_at:%Y-%m-%d}: {moment.summary}" for moment in reversed(latest))


def rewrite(event: Message, payload: dict[str, Any], *, is_of_request: bool = False) -> None:
    """Replace the payload of a stored partition event, and update its text.

    Args:
        is_of_request: whether the role may be that of requests, which may not write served lines. They are then
            written in the background.
    """
    places = {line.partition(":")[0]: place for place, line in enumerate(event.content.split("\n"))}
    event.payload = payload
    # Restore the order of the fields, which the database doesn't preserve.
    event.content = fenced(dict(sorted(payload.items(), key=lambda field: places.get(field[0], len(places)))))
    event.tokens = estimate_tokens(event.content)
    event.save(update_fields=["payload", "content", "tokens"])
    if is_of_request:
        transaction.on_commit(partial(platform_text.keep_soon, event.user_id, [event.content]))
    else:
        platform_text.keep(event.user_id, [event.content])


def fenced(payload: dict[str, object]) -> str:
    """Return the payload as text, one field per line. No value can start a new line or end the text."""
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in payload.items()]
    body = "\n".join(lines).replace("[/TOOL", "\\u005b/TOOL").replace("[TOOL", "\\u005bTOOL")
    return f"[TOOL RESULT: {TOOL_NAME}]\n{body}\n[/TOOL RESULT]"
