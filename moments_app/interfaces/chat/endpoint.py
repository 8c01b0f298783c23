"""The URLs of the chat endpoint, and the checks before a call is forwarded."""

import asyncio
import time
from functools import partial

import structlog
from django.conf import settings
from django.db import DatabaseError, OperationalError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moments_app.interfaces.chat.errors import FAILURES, answer_http_error, answer_refusal
from moments_app.interfaces.chat.memory import RequestWithMemory, with_memory
from moments_app.interfaces.chat.protocols import PROTOCOLS, Protocol
from moments_app.interfaces.chat.relay import UPSTREAM_ERRORS, Relay, call_upstream, passed_headers, upstream_error
from moments_app.interfaces.chat.request import ChatRequest, ChatSession, authenticated, chat_session_of
from moments_app.interfaces.chat.rounds import Round
from moments_app.interfaces.chat.threads import in_thread
from moments_app.interfaces.chat.write_ahead import WriteAhead, catch_up, keep_replaying
from moments_app.interfaces.request_guard import check_request
from sessions_app.daily_limits import current_call
from sessions_app.models import ApiKey
from sessions_app.refusals import Refusal

logger = structlog.get_logger(__name__)


async def _answer(protocol: Protocol, request: Request) -> Relay:
    """Serve a call: check its key, and relay the upstream's answer to the request with memory."""
    check_request(request.scope)
    key = await authenticated(request.headers)
    data = await request.body()  # the size was checked when the body was received
    sent = await in_thread(partial(protocol.read_request, data))
    session = chat_session_of(key, request.headers, sent)
    await _count(key)
    keep_replaying()
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
            content = b"".join([part async for part in response.aiter_raw()])
        except UPSTREAM_ERRORS as error:
            raise upstream_error(error) from None
        return Response(content, response.status_code, passed_headers(response))


async def _count(key: ApiKey) -> None:
    """Count a call against the limits. If the database does not respond, continue without counting.

    Raises:
        LimitReached: the call exceeds a limit.
    """
    try:
        await asyncio.wait_for(in_thread(partial(current_call().begin, key)), settings.CHAT.memory_timeout_seconds)
    except (DatabaseError, TimeoutError) as error:
        logger.warning("a call continues without limits", error=type(error).__name__)


async def _with_memory(session: ChatSession, request: ChatRequest) -> RequestWithMemory | None:
    """Return the request with memory, or None if adding memory fails for any reason."""
    try:
        work = in_thread(partial(_caught_up, session, request))
        return await asyncio.wait_for(work, settings.CHAT.memory_timeout_seconds)
    except Exception as error:
        FAILURES.labels("load").inc()
        logger.warning("a call continues without memory", error=type(error).__name__)
        return None


def _caught_up(session: ChatSession, request: ChatRequest) -> RequestWithMemory:
    """Add memory to a request. First store earlier rounds of the session that are still in the spool."""
    catch_up(session)
    return with_memory(session, request)


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
