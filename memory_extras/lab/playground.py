"""The playground: test people, calls to the chat endpoint, and the source turns of the lines in their contexts."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db.models import Q
from starlette.types import Message as ChatMessage

from moments_app.context.receipts import StoredContext
from moments_app.interfaces.chat.endpoint import relayed
from moments_app.interfaces.chat.protocols import CHAT
from moments_app.interfaces.chat.relay import close_upstream
from moments_app.interfaces.chat.request import ChatSession
from moments_app.models import MemoryAtom
from moments_app.operator.addresses import SESSIONS, Pages
from moments_app.operator.views.context import ShownLayer, ShownLine, shown_layers
from sessions_app.admin.links import turn_url
from sessions_app.models import Message, Session, UserProfile
from sessions_app.refusals import Conflict

ATOMS, MOMENTS = "rem://atoms/", "rem://moments/key/"
ORIGINS = 6  # maximum source turns shown per line


class RealPerson(Conflict):
    """The name belongs to a real person, so operators can't chat as them."""


@dataclass(frozen=True)
class Origin:
    """A source turn of a line. `here` is its sequence number, or None if the turn is in another session."""

    name: str
    url: str
    here: int | None


@dataclass(frozen=True)
class HighlightedLine(ShownLine):
    origins: Sequence[Origin] = ()

    @property
    def here(self) -> str:
        return " ".join(str(origin.here) for origin in self.origins if origin.here is not None)


def get_or_create_test_person(name: str, application: int) -> UserProfile:
    """Return the test person with this name, created if missing. Raise `RealPerson` if a real person has it."""
    person = UserProfile.objects.named(name, application)
    if person is None:
        person, _ = UserProfile.objects.get_or_create(
            application_id=application, user_id=name, defaults={"is_test": True}
        )
    if not person.is_test:
        raise RealPerson(f"{name} is a real person of the application, so you can't chat as them. Choose another name.")
    return person


def highlighted_layers(kept: StoredContext, session: Session) -> list[ShownLayer]:
    """Return the layers of a context that was served in a session, with the source turns of their lines."""
    refs = set(kept.refs())
    pages, turns = Pages(session.user, refs), _turns_of(session.user, refs)
    shown = shown_layers(kept.layers, pages, kept.tokens or 1)
    return [
        replace(layer, lines=[_highlighted(line, session, turns) for line in layer.lines])
        for layer in shown
        if layer.lines and layer.key != "query"
    ]


def _highlighted(shown: ShownLine, session: Session, turns: dict[str, list[Message]]) -> HighlightedLine:
    origins = [_origin(turn, session) for turn in turns.get(shown.line.ref, ())[:ORIGINS]]
    return HighlightedLine(shown.line, shown.source, origins=origins)


def _origin(turn: Message, session: Session) -> Origin:
    is_here = turn.session_id == session.pk
    name = f"turn {turn.sequence}" if is_here else f"turn {turn.sequence} of {turn.session.session_id}"
    return Origin(name, turn_url(turn.session_id, turn.sequence), turn.sequence if is_here else None)


def _turns_of(user: UserProfile, refs: Collection[str]) -> dict[str, list[Message]]:
    """Return the source turns of each address, with two queries."""
    atoms = MemoryAtom.objects.filter(user=user, atom_id__in=_ids(refs, ATOMS))
    sources = {f"{ATOMS}{atom}": pks for atom, pks in atoms.values_list("atom_id", "source_message_ids")}
    keys = {ref.removeprefix(MOMENTS) for ref in refs if ref.startswith(MOMENTS)}
    said = {ref for ref in refs if ref.startswith(SESSIONS) and "/messages/" in ref}
    of_session = {ref.removeprefix(SESSIONS).rsplit("/messages/", 1)[0] for ref in said}
    among = Q(pk__in={pk for pks in sources.values() for pk in pks}) | Q(moment__key__in=keys)
    if said:
        numbers = {int(ref.rsplit("/", 1)[1]) for ref in said}
        among |= Q(session__session_id__in=of_session, sequence__in=numbers)
    turns = Message.objects.turns().filter(among, user=user).select_related("session", "moment").order_by("sequence")
    found: dict[str, list[Message]] = defaultdict(list)
    by_pk = {}
    for turn in turns:
        by_pk[turn.pk] = turn
        found[f"{SESSIONS}{turn.session.session_id}/messages/{turn.sequence}"].append(turn)
        if turn.moment:
            found[f"{MOMENTS}{turn.moment.key}"].append(turn)
    return found | {ref: [by_pk[pk] for pk in pks if pk in by_pk] for ref, pks in sources.items()}


def _ids(refs: Iterable[str], prefix: str) -> list[UUID]:
    return [UUID(ref.removeprefix(prefix)) for ref in refs if ref.startswith(prefix)]


# --- in-process calls to the chat endpoint; they skip only the checks of the API key, which operators don't have ---


@dataclass
class ChatResponse:
    """The response that the caller receives."""

    status: int = 0
    content: bytearray = field(default_factory=bytearray)

    async def send(self, message: ChatMessage) -> None:
        self.status = message.get("status", self.status)
        self.content += message.get("body", b"")

    @property
    def error(self) -> str:
        """Why there is no answer, or a blank string. Never the upstream's message, which may quote user text."""
        return "" if self.status < 400 else f"No answer: status {self.status}."


def call_chat(session: ChatSession, body: dict[str, Any]) -> ChatResponse:
    """Return the endpoint's response to a call: add memory, store the round, call the upstream.

    Call this in a thread without an event loop, and outside any transaction: it waits for the upstream.

    Args:
        body: The body of the call. It must not request a stream.

    Raises:
        ChatError: The body is invalid.
    """
    return asyncio.run(_call_chat(session, json.dumps(body).encode()))


async def _call_chat(session: ChatSession, data: bytes) -> ChatResponse:
    passed = ChatResponse()
    try:
        relay = await relayed(CHAT, session, CHAT.read_request(data))
        await relay({"type": "http"}, _wait, passed.send)
    finally:
        await close_upstream()
    return passed


async def _wait() -> ChatMessage:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets the event")
