"""What a call gets from memory, and what memory gets from a call."""

from dataclasses import dataclass, replace
from uuid import UUID

from moments_app.context.assemble import Envelope
from moments_app.context.layers import DEFAULT
from moments_app.context.request import ContextRequest
from moments_app.context.serve import serve_context
from moments_app.interfaces.chat.caller import Caller
from moments_app.interfaces.chat.conversation import Conversation
from sessions_app.models import Message
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, locked_session
from sessions_app.transcript.append_round import INCOMPLETE, append_round, live_from, newest_turns

SOURCE = "chat"  # of sessions that begin here; turns stored from here have it in their metadata
# For a caller who sends the conversation along: neither its turns nor a summary of them is told again.
WITHOUT_TURNS = tuple(name for name in DEFAULT if name not in ("hot_turns", "summary"))


@dataclass(frozen=True)
class Memory:
    """Memory for a call.

    Args:
        context_id: of the receipt.
        body: the caller's with memory in it.
        replaced: how many of the caller's messages are left out of it, being remembered.
    """

    context_id: UUID
    body: bytes
    replaced: int


def remember(caller: Caller, conversation: Conversation) -> Memory:
    """Puts memory into a call. A session that is new begins here: earlier ones are remembered in it.

    Where the caller sends the conversation's history, no turn of it is repeated, and what lies before the boundary
    whose checkpoint the memory has is left out; else the newest turns come from memory.

    Raises:
        Exception: whatever fails in memory.
    """
    layers = WITHOUT_TURNS if conversation.has_history else DEFAULT
    sent = [turn.content for turn in conversation.turns]
    wanted = ContextRequest(query=conversation.query, format="messages", layers=layers, sent=sent)
    envelope = serve_context(caller.user_id, caller.session_id, wanted, retrieval="query")
    while envelope is None:
        _begin(caller)
        envelope = serve_context(caller.user_id, caller.session_id, wanted, retrieval="query")
    return _with_memory(envelope, conversation)


def _begin(caller: Caller) -> None:
    with acting_for(caller.user_id, create=True, holding=True) as user:
        assert user is not None  # it was made
        locked_session(user, caller.session_id, agent_id=caller.agent_id, source=SOURCE)


def _with_memory(envelope: Envelope, conversation: Conversation) -> Memory:
    context = envelope.context
    assert isinstance(context, list)  # its format
    memory, *earlier = context
    if conversation.query:
        earlier.pop()  # the caller's own message stands there already
    recalled = [earlier.pop()] if earlier and earlier[-1]["role"] == Message.Role.SYSTEM else []
    said = {turn.content for turn in conversation.turns}
    while earlier and earlier[-1]["role"] == Message.Role.USER and earlier[-1]["content"] in said:
        earlier.pop()  # sent before, and not answered
    replaced = _remembered(envelope, conversation)
    body = conversation.with_memory(memory, earlier, recalled, without=replaced)
    return Memory(envelope.context_id, body, replaced)


def _remembered(envelope: Envelope, conversation: Conversation) -> int:
    """How many of the caller's turns stand before the boundary whose checkpoint is in the context."""
    boundary, source = envelope.checkpoint, envelope.input
    if boundary is None or not conversation.has_history:
        return 0
    with acting_for(source.user.user_id):
        known = newest_turns(source.session, conversation.turns)
    return live_from(known, conversation.turns, boundary)


def store(caller: Caller, conversation: Conversation, answer: NewMessage | None, *, unanswered: str) -> None:
    """Stores a round; what it makes due is asked for with it.

    Args:
        caller: whose it is.
        conversation: as it was sent.
        answer: None when there is none.
        unanswered: why; blank when there is one.
    """
    sent = [replace(turn, metadata=turn.metadata | {"source": SOURCE}) for turn in conversation.turns]
    if unanswered and sent:
        sent[-1].metadata[INCOMPLETE] = unanswered
    with acting_for(caller.user_id, create=True, holding=True) as user:
        assert user is not None  # it was made
        append_round(user, caller.session_id, sent, answer, agent_id=caller.agent_id, source=SOURCE)
