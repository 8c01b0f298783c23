"""The partition event: the marker that compaction leaves in a session, written for the model that will read it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from django.conf import settings
from django.utils import timezone

from moments_app.models import Moment
from sessions_app.models import Message, Session
from sessions_app.tokens import estimate_tokens

TOOL_NAME = "session_partition"
TOPICS_NAMED = 5
RECOVERY_HINT = (
    "This is a checkpoint: what was said before it is remembered as moments. Read rem://moments/key/{key} for the "
    "detail of one; each moment names its predecessors in previous_moment_keys, so the chain can be walked backwards."
)


@dataclass(frozen=True)
class PartitionEvent:
    """The payload of a partition event that a build of moments leaves behind."""

    session: Session
    moment_keys: list[str]
    last_n_moment_keys: list[str]
    recent_moments_summary: str
    messages_compressed: int
    summary: str

    @classmethod
    def of_build(cls, moments: Sequence[Moment], *, journey: str, session: Session) -> Self:
        """Describes a build.

        Args:
            moments: made by it, oldest first, already stored.
            journey: the engine's sentences over the recent moments.
            session: whose turns they hold.
        """
        count = sum(moment.last_sequence - moment.first_sequence + 1 for moment in moments)
        topics = list(dict.fromkeys(tag for moment in moments for tag in moment.topic_tags[:2]))[:TOPICS_NAMED]
        about = f", about {', '.join(topics)}" if topics else ""
        latest = Moment.objects.filter(user_id=session.user_id).newest_first().values_list("key", flat=True)
        return cls(
            session=session,
            moment_keys=[moment.key for moment in moments],
            last_n_moment_keys=list(latest[: settings.MOMENT_BUILDER.recent_moment_count]),
            recent_moments_summary=journey,
            messages_compressed=count,
            summary=f"{count} turns became {len(moments)} moment{'s' * (len(moments) != 1)}{about}.",
        )

    def leave(self, sequence: int) -> Message:
        """Writes the event right after the turn with this sequence, dated as that turn."""
        turn = self.session.messages.turns().get(sequence=sequence)
        payload = self.payload()
        content = fenced(payload)
        return Message.objects.create(
            session=self.session,
            user_id=self.session.user_id,
            sequence=sequence,
            kind=Message.Kind.PARTITION,
            role=Message.Role.TOOL,
            tool_name=TOOL_NAME,
            content=content,
            payload=payload,
            tokens=estimate_tokens(content),
            created_at=turn.created_at,
        )

    def payload(self) -> dict[str, object]:
        return {
            "partition_type": "moment_compression",
            "created_at": timezone.now().isoformat(),
            "user_key": self.session.user.user_id,
            "moment_keys": self.moment_keys,
            "last_n_moment_keys": self.last_n_moment_keys,
            "recent_moments_summary": self.recent_moments_summary,
            "messages_compressed": self.messages_compressed,
            "summary": self.summary,
            "recovery_hint": RECOVERY_HINT,
        }


def fenced(payload: dict[str, object]) -> str:
    """The payload as text: a line a field, each value as JSON, so that none can break out of its line or the fence."""
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in payload.items()]
    body = "\n".join(lines).replace("[/TOOL", "\\u005b/TOOL").replace("[TOOL", "\\u005bTOOL")
    return f"[TOOL RESULT: {TOOL_NAME}]\n{body}\n[/TOOL RESULT]"
