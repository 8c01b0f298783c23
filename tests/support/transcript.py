"""Conversations for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import F

from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
_TOPICS = ["the kiln and its glaze", "the rent of the shop", "Italian verbs for Bologna", "the knee and its exercises"]


def turns(count: int, *, first: int = 0, text: str = "", days: float = 0) -> list[NewMessage]:
    """Return alternating user and assistant turns, a minute apart. The topic changes every 25 turns."""
    return [
        NewMessage(
            role="assistant" if number % 2 else "user",
            content=text or f"Turn {number} is about {_TOPICS[number // 25 % len(_TOPICS)]}, point {number % 7}.",
            created_at=START + timedelta(days=days, minutes=number),
        )
        for number in range(first, first + count)
    ]


def talk(user: UserProfile, count: int, *, session_id: str = "s1", text: str = "", days: float = 0) -> Session:
    """Append turns to a session in one batch. With `days`, they are some days later, and so is their arrival."""
    present = Session.objects.filter(user=user, session_id=session_id).first()
    first = present.message_count if present else 0
    return arrived_when_said(append(user, session_id, turns(count, first=first, text=text, days=days)).session)


def arrived_when_said(session: Session) -> Session:
    """Set the arrival of all turns of a session to their times."""
    session.messages.turns().update(arrived_at=F("created_at"))
    session.last_arrived_at = session.last_activity_at
    session.save(update_fields=["last_arrived_at"])
    return session


def retracted() -> list[int]:
    """Return the places of all retracted turns."""
    return list(Message.objects.exclude(retracted_at=None).order_by("sequence").values_list("sequence", flat=True))


def messages(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the bodies of messages for the REST API."""
    return [{"role": "assistant" if n % 2 else "user", "content": f"Message {n}", **fields} for n in range(count)]
