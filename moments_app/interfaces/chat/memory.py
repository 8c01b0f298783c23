"""Add memory to requests of the chat endpoint."""

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.conf import settings

from moments_app.context.assemble import ContextRequest, Envelope, serve_context
from moments_app.context.layers import default_layers
from moments_app.interfaces.chat.request import ChatRequest, ChatSession
from sessions_app.models import Message
from sessions_app.row_security import acting_for
from sessions_app.transcript.append_round import live_from, newest_turns
from sessions_app.transcript.store import NamedSession, locked_session

SOURCE = "chat"  # origin of new sessions; also stored in the metadata of turns
# Layers to omit if the caller sends the conversation, because they would repeat its turns.
OF_TURNS = ("hot_turns", "summary")


@dataclass(frozen=True)
class RequestWithMemory:
    """A request with added memory.

    Args:
        context_id: the id of the context's receipt.
        body: the body for the upstream.
        replaced: the number of the caller's messages that memory replaces.
    """

    context_id: UUID
    body: bytes
    replaced: int


def with_memory(session: ChatSession, request: ChatRequest) -> RequestWithMemory:
    """Add memory to a request. If the session is new, create it.

    If the caller sends the conversation's history, memory doesn't repeat its turns, and a checkpoint replaces the turns
    before its boundary. Otherwise memory adds the newest turns.

    Raises:
        Exception: adding memory failed, for any reason.
    """
    layers = [name for name in default_layers() if not (request.has_history and name in OF_TURNS)]
    sent = [turn.content for turn in request.turns]
    wanted = ContextRequest(query=request.query, format="messages", layers=layers, sent=sent)
    serve = partial(
        serve_context,
        session.user_id,
        session.session_id,
        wanted,
        application=session.application,
        retrieval=settings.CHAT.retrieval,
    )
    while (envelope := serve()) is None:
        _begin(session)
    return _put_into(request, envelope)


def _begin(session: ChatSession) -> None:
    with acting_for(session.user_id, application=session.application, create=True, holding=True) as user:
        assert user is not None  # `create` creates the person
        locked_session(NamedSession(user, session.session_id, session.agent_id, SOURCE))


def _put_into(request: ChatRequest, envelope: Envelope) -> RequestWithMemory:
    context = envelope.context
    assert isinstance(context, list)  # because the format is `messages`
    memory, *earlier = context
    if request.query:
        earlier.pop()  # the caller's messages already include it
    recalled = [earlier.pop()] if earlier and earlier[-1]["role"] == Message.Role.SYSTEM else []
    said = {turn.content for turn in request.turns}
    while earlier and earlier[-1]["role"] == Message.Role.USER and earlier[-1]["content"] in said:
        earlier.pop()  # an earlier message that was not answered
    replaced = _replaced_turns(request, envelope)
    body = request.with_memory(memory, earlier, recalled, without=replaced)
    return RequestWithMemory(envelope.context_id, body, replaced)


def _replaced_turns(request: ChatRequest, envelope: Envelope) -> int:
    """Return the number of the caller's turns that the context's checkpoint replaces."""
    boundary, source = envelope.checkpoint, envelope.input
    if boundary is None or not request.has_history:
        return 0
    with acting_for(source.user.user_id, application=source.user.application_id):
        known = newest_turns(source.session, request.turns)
    return live_from(known, request.turns, boundary)
