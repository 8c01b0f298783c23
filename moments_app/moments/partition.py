"""Store and rewrite partition events, and delete moments.

A partition event is a boundary in a session, with a text for the model that reads the session.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Self

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from moments_app.models import Job, Moment
from moments_app.models.job import LEFT_OUT
from moments_app.models.moment import LATEST_MOMENTS
from moments_app.moments.journey import RECENT_MOMENTS
from moments_app.turns import platform_text
from sessions_app.models import Event, Message, Session
from sessions_app.models.event import MOMENT_DELETED
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
        """Return the event for a build. Pass its stored moments, oldest first."""
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
            turns: the sequence numbers of the replaced turns.
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

    def store_after(self, sequence: int) -> Message:
        """Store the event right after a turn, with the turn's time."""
        [message] = store_events([(self, sequence)])
        return message

    def payload(self, latest: Sequence[str]) -> dict[str, object]:
        """Return the payload, including the fields common to all events. `latest` has keys of the latest moments."""
        return {
            "partition_type": self.partition_type,
            "created_at": timezone.now().isoformat(),
            "user_key": self.session.user.user_id,
            **self.fields,
            "last_n_moment_keys": list(latest),
            "recovery_hint": RECOVERY_HINT,
        }


def store_events(events: Sequence[tuple[PartitionEvent, int]]) -> list[Message]:
    """Store events in sessions of one person.

    Each event is given with the sequence number of the turn that it follows. It gets the turn's time.
    """
    user = events[0][0].session.user_id
    said_at = _times_of_turns(user, [(event.session.pk, sequence) for event, sequence in events])
    keys = Moment.objects.filter(user_id=user).newest_first().values_list("key", flat=True)
    latest = list(keys[:LATEST_MOMENTS])
    left = [_message(event, sequence, latest, said_at[event.session.pk, sequence]) for event, sequence in events]
    platform_text.store_lines(user, [message.content for message in left])
    return Message.objects.bulk_create(left)


def _times_of_turns(user: int, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], datetime]:
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


def text_known_at(event: Message | None) -> str:
    """Return what is known before a partition event: the context of a digest, or the summaries of moments.

    The text depends only on the event's own session. So withdrawals in other sessions don't affect data derived from
    this text.
    """
    if event is None:
        return ""
    payload = event.payload if isinstance(event.payload, dict) else {}
    return str(payload.get("context") or _summaries_before(event))


def _summaries_before(event: Message) -> str:
    own = Moment.objects.filter(user_id=event.user_id, source_session_id=event.session_id)
    latest = own.filter(last_sequence__lte=event.sequence).order_by("-first_sequence")[:RECENT_MOMENTS]
    return "\n".join(f"{moment.ends_at:%Y-%m-%d}: {moment.summary}" for moment in reversed(latest))


def rewrite(event: Message, payload: dict[str, Any], *, is_of_request: bool = False) -> None:
    """Replace the payload of a stored partition event, and update its text.

    With `is_of_request`, write the served lines in the background, because the database role of requests may not write
    them.
    """
    places = {line.partition(":")[0]: place for place, line in enumerate(event.content.split("\n"))}
    event.payload = payload
    # Restore the order of the fields, which the database doesn't preserve.
    event.content = fenced(dict(sorted(payload.items(), key=lambda field: places.get(field[0], len(places)))))
    event.tokens = estimate_tokens(event.content)
    event.save(update_fields=["payload", "content", "tokens"])
    if is_of_request:
        transaction.on_commit(partial(platform_text.store_lines_later, event.user_id, [event.content]))
    else:
        platform_text.store_lines(event.user_id, [event.content])


def fenced(payload: dict[str, object]) -> str:
    """Return the payload as text, one field per line. No value can start a new line or end the text."""
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in payload.items()]
    body = "\n".join(lines).replace("[/TOOL", "\\u005b/TOOL").replace("[TOOL", "\\u005bTOOL")
    return f"[TOOL RESULT: {TOOL_NAME}]\n{body}\n[/TOOL RESULT]"


# --- deleting moments ---
#
# Retractions and rebuilds remove the keys of deleted moments from other rows, because keys are derived from names,
# which may quote turns.


@transaction.atomic
def delete_moment(moment: Moment, *, actor: str) -> None:
    """Delete a moment, and clear journeys that may mention it. Its turns stay, and count as processed."""
    Event.objects.create(
        type=MOMENT_DELETED,
        actor=actor,
        user_pk=moment.user_id,
        session_pk=moment.source_session_id,
        payload={
            "key": moment.key,
            "first_sequence": moment.first_sequence,
            "last_sequence": moment.last_sequence,
        },
    )
    user_id, since = moment.user_id, moment.starts_at
    moment.delete()
    Moment.objects.with_journey_since(user_id, since).update(journey="")


def rows_with_keys(session: Session, keys: Sequence[str], also: Q | None = None) -> list[Message | Job | Event]:
    """Return the rows that contain these moment keys, and the session's jobs whose results contain dropped sentences.

    The rows are jobs, entries of the event log, and partition events of the person's other sessions.

    Args:
        also: a condition that selects additional partition events.
    """
    events = Message.objects.partitions().filter(session__user_id=session.user_id).exclude(session=session)
    named = Q(payload__last_n_moment_keys__has_any_keys=keys) | Q(payload__moment_keys__has_any_keys=keys)
    quoting = Q(session=session, result__has_key=LEFT_OUT)
    jobs = Job.objects.filter(quoting | Q(result__moment_keys__has_any_keys=keys), user_id=session.user_id)
    log = Event.objects.filter(user_pk=session.user_id, payload__moment_keys__has_any_keys=keys)
    return [*events.filter(named | also if also else named), *jobs, *log] if keys else [*jobs]


def remove_keys(row: Message | Job | Event, keys: Collection[str], **fields: str) -> None:
    """Remove keys of deleted moments from a row, and dropped sentences from a job.

    `fields` are further fields to set in the payload of a partition event.
    """
    if isinstance(row, Message):
        rewrite(row, _without(row.payload, keys) | fields)
    elif isinstance(row, Job):
        row.result = {name: value for name, value in _without(row.result, keys).items() if name != LEFT_OUT}
        row.save(update_fields=["result"])
    else:
        row.payload = _without(row.payload, keys)
        row.save(update_fields=["payload"])


def _without(payload: Any, keys: Collection[str]) -> dict[str, Any]:
    return {
        name: [key for key in value if key not in keys] if name in ("moment_keys", "last_n_moment_keys") else value
        for name, value in payload.items()
    }
