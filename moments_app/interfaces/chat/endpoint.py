"""The URLs of the chat endpoint, the checks before a call is forwarded, and the memory that is added to it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, OperationalError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moments_app.context.assemble import ContextRequest, Envelope, serve_context
from moments_app.context.layers import default_layers
from moments_app.interfaces.asgi import check_request, in_chat_thread
from moments_app.interfaces.chat.errors import FAILURES, answer_http_error, answer_refusal
from moments_app.interfaces.chat.protocols import PROTOCOLS, Protocol
from moments_app.interfaces.chat.relay import UPSTREAM_ERRORS, Relay, call_upstream, relayed_headers, upstream_error
from moments_app.interfaces.chat.request import ChatRequest, ChatSession, authenticated, chat_session_of
from moments_app.interfaces.chat.rounds import SOURCE, Round, WriteAhead, replay_session, start_replaying
from sessions_app.models import ApiKey, Message, Session
from sessions_app.models.daily_limit import current_call
from sessions_app.models.session import NamedSession
from sessions_app.refusals import Refusal
from sessions_app.row_security import acting_for
from sessions_app.transcript.append_round import live_from, newest_turns

# Layers to omit if the client sends the conversation, because they would repeat its turns.
TURN_LAYERS = ("hot_turns", "summary")

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RequestWithMemory:
    context_id: UUID
    body: bytes  # the request to send to the upstream
    replaced: int  # number of the client's messages that memory replaces


async def _answer(protocol: Protocol, request: Request) -> Relay:
    """Serve a call: check its key, add memory to the request, and relay the upstream's answer."""
    check_request(request.scope)
    key = await authenticated(request.headers)
    data = await request.body()  # the size was checked when the body was received
    sent = await in_chat_thread(partial(protocol.read_request, data))
    session = chat_session_of(key, request.headers, sent)
    await _count(key)
    start_replaying()
    return await relayed(protocol, session, sent)


async def relayed(protocol: Protocol, session: ChatSession, sent: ChatRequest) -> Relay:
    """Add memory to a call, commit the person's message, and return the response that relays the answer."""
    started = time.monotonic()
    memory = await _with_memory(session, sent)
    left = settings.CHAT.memory_timeout_seconds - (time.monotonic() - started)
    context_id = str(memory.context_id) if memory else ""
    ahead = await WriteAhead.begin(Round(session, sent.turns, protocol.name, context_id), max(0.0, left))
    if memory is None:
        return Relay(ahead, sent.without_memory(), {"X-Memory": "unavailable"})
    headers = {"X-Memory": "applied", "X-Memory-Context": str(memory.context_id)}
    headers["X-Memory-Replaced"] = str(memory.replaced)
    return Relay(ahead, memory.body, headers)


async def models(request: Request) -> Response:
    check_request(request.scope)
    key = await authenticated(request.headers)
    await _count(key)
    async with call_upstream("GET", "/models") as response:
        try:
            content = b"".join([part async for part in response.aiter_bytes()])
        except UPSTREAM_ERRORS as error:
            raise upstream_error(error) from None
        return Response(content, response.status_code, relayed_headers(response))


async def _count(key: ApiKey) -> None:
    """Count a call against the limits. If the database does not respond, continue without counting.

    Raises:
        LimitReached: the call exceeds a limit.
    """
    try:
        await asyncio.wait_for(in_chat_thread(partial(current_call().begin, key)), settings.CHAT.memory_timeout_seconds)
    except (DatabaseError, TimeoutError) as error:
        logger.warning("a call continues without limits", error=type(error).__name__)


async def _with_memory(session: ChatSession, request: ChatRequest) -> RequestWithMemory | None:
    """Return the request with memory, or None if adding memory fails for any reason."""
    try:
        work = in_chat_thread(partial(_replay_and_add_memory, session, request))
        return await asyncio.wait_for(work, settings.CHAT.memory_timeout_seconds)
    except Exception as error:
        FAILURES.labels("load").inc()
        logger.warning("a call continues without memory", error=type(error).__name__)
        return None


def _replay_and_add_memory(session: ChatSession, request: ChatRequest) -> RequestWithMemory:
    replay_session(session)
    return with_memory(session, request)


# --- memory ---


def with_memory(session: ChatSession, request: ChatRequest) -> RequestWithMemory:
    """Add memory to a request. If the session is new, create it.

    If the client sends the conversation's history, memory doesn't repeat its turns, and a checkpoint replaces the turns
    before its boundary. Otherwise memory adds the newest turns.
    """
    layers = [name for name in default_layers() if not (request.has_history and name in TURN_LAYERS)]
    sent = [turn.content for turn in request.turns]
    wanted = ContextRequest(
        query=request.query, format="messages", layers=layers, sent=sent, results=request.tool_call_ids
    )
    serve = partial(
        serve_context,
        session.user_id,
        session.session_id,
        wanted,
        application=session.application,
        retrieval=settings.CHAT.retrieval,
    )
    while (envelope := serve()) is None:
        _create_session(session)
    return _with_context(request, envelope)


def _create_session(session: ChatSession) -> None:
    with acting_for(session.user_id, application=session.application, create=True, for_write=True) as user:
        assert user is not None  # `create` creates the person
        Session.objects.ensure_locked(NamedSession(user, session.session_id, session.agent_id, SOURCE))


def _with_context(request: ChatRequest, envelope: Envelope) -> RequestWithMemory:
    context = envelope.context
    assert isinstance(context, list)  # always a list in the format `messages`
    memory, *earlier = context
    if request.query:
        earlier.pop()  # the context ends with the query, which the client's messages already include
    recalled = [earlier.pop()] if earlier and earlier[-1]["role"] == Message.Role.SYSTEM else []
    sent = {turn.content for turn in request.turns}
    while earlier and earlier[-1]["role"] == Message.Role.USER and earlier[-1]["content"] in sent:
        earlier.pop()  # an earlier message that was not answered
    _drop_results(earlier, request.tool_call_ids)
    replaced = _replaced_turns(request, envelope)
    body = request.with_memory(memory, earlier, recalled, without=replaced)
    return RequestWithMemory(envelope.context_id, body, replaced)


def _drop_results(earlier: list[dict[str, Any]], sent: Sequence[str]) -> None:
    """Drop the results of the newest tool calls, and everything after them, if the client sends these results again."""
    called = [place for place, message in enumerate(earlier) if message.get("tool_calls")]
    if called and any(call.get("id") in sent for call in earlier[called[-1]]["tool_calls"]):
        del earlier[called[-1] + 1 :]


def _replaced_turns(request: ChatRequest, envelope: Envelope) -> int:
    """Return the number of the client's turns that the context's checkpoint replaces."""
    boundary, source = envelope.checkpoint, envelope.input
    if boundary is None or not request.has_history:
        return 0
    with acting_for(source.user.user_id, application=source.user.application_id):
        known = newest_turns(source.session, request.turns)
    return live_from(known, request.turns, boundary)


application = Starlette(
    routes=[
        *(
            Route(f"/v1{protocol.path}", partial(_answer, protocol), methods=["POST"])
            for protocol in PROTOCOLS.values()
        ),
        Route("/v1/models", models),
    ],
    exception_handlers={
        Refusal: answer_refusal,
        OperationalError: answer_refusal,
        HTTPException: answer_http_error,
    },
)
