"""Distinguish the user of a session from the other people who speak in it.

The user is the speaker whose name is their `user_id` or a name from facts about them. If there is none, it is the first
speaker with a name.
"""

from collections.abc import Collection, Iterable, Sequence

from django.db.models import Min

from moments_app.engines.extractive.kinds import is_of_speaker
from moments_app.engines.extractive.language import language_of
from moments_app.engines.statements.said import SPEAKER
from moments_app.streams.known_people import names_of
from sessions_app.models import Message, Session

SPEECH = (Message.Role.USER, Message.Role.ASSISTANT)
ASSISTANT = "Assistant"  # name in quotes of an assistant without a name


def other_speakers(session: Session, turns: Iterable[Message], own: str) -> frozenset[str]:
    """Return the names of the other people who speak in turns of a session.

    Args:
        own: the name under which the user speaks.
    """
    named = {turn.name for turn in turns if turn.role in SPEECH} - {"", session.agent_id}
    return frozenset(name for name in named if name.casefold() != own.casefold())


def own_name(session: Session, turns: Iterable[Message]) -> str:
    """Return the name under which the user speaks in a session; blank if none of these turns has a name."""
    if not any(turn.name for turn in turns):
        return ""
    said = session.messages.filter(user_id=session.user_id, role=Message.Role.USER).exclude(name="")
    names: list[str] = [name for name, _ in said.values_list("name").annotate(first=Min("sequence")).order_by("first")]
    if len(names) < 2:
        return "".join(names)
    own = {name.casefold() for name in (session.user.user_id, *names_of(session.user_id))}
    return next((name for name in names if name.casefold() in own), names[0])


def told_of_themselves(text: str, sources: Sequence[Message], others: Collection[str]) -> str:
    """Return the name of another speaker who makes a statement about themselves; blank if the user took part.

    Args:
        sources: its turns, oldest first.
        others: the names of the other speakers.
    """
    if any(turn.role == Message.Role.USER and turn.name not in others for turn in sources):
        return ""
    line, last = SPEAKER.match(text), sources[-1]
    name = last.name or (line[1] if line and last.role == Message.Role.ASSISTANT else "")
    if not name or name == ASSISTANT or (last.name and name not in others):
        return ""
    said = text.removeprefix(f"{name}: ")
    is_own = is_of_speaker(said, language_of(said)) if said != text else text.startswith(name)
    return name if is_own else ""
