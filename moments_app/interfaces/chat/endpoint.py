"""The addresses of the chat endpoint: what is checked before a call goes on."""

import asyncio
from functools import partial

import structlog
from django.conf import settings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moments_app.interfaces.chat import upstream
from moments_app.interfaces.chat.caller import Caller, authenticated, caller_of
from moments_app.interfaces.chat.conversation import Conversation, read_conversation
from moments_app.interfaces.chat.errors import ChatError, answer_error, answer_http_error
from moments_app.interfaces.chat.figures import FAILURES
from moments_app.interfaces.chat.memory import Memory, remember
from moments_app.interfaces.chat.relay import Relay
from moments_app.interfaces.chat.threads import in_thread

logger = structlog.get_logger(__name__)


async def completions(request: Request) -> Relay:
    """An answer of the upstream's model, which was given memory."""
    key = await authenticated(request.headers)
    caller = caller_of(key, request.headers)
    data = await _body(request)
    conversation = await in_thread(partial(read_conversation, data))
    memory = await _remembered(caller, conversation)
    if memory is None:
        return Relay(caller, conversation, data, {"X-Memory": "unavailable"})
    headers = {"X-Memory": "applied", "X-Memory-Context": str(memory.context_id)}
    headers["X-Memory-Replaced"] = str(memory.replaced)
    return Relay(caller, conversation, memory.body, headers)


async def models(request: Request) -> Response:
    """The upstream's models, as it lists them."""
    await authenticated(request.headers)
    async with upstream.opened("GET", "/models") as response:
        try:
            content = b"".join([part async for part in response.aiter_raw()])
        except upstream.BROKEN as error:
            raise upstream.broken(error) from None
        return Response(content, response.status_code, upstream.passed_on(response))


async def _body(request: Request) -> bytes:
    """The body, of which no more than `API_MAX_BODY_BYTES` is read."""
    limit = settings.API_MAX_BODY_BYTES
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise ChatError(413, "too_large", f"The body is larger than {limit} bytes.")
    return bytes(data)


async def _remembered(caller: Caller, conversation: Conversation) -> Memory | None:
    """Memory for the call; None when it can't be had, whatever the reason."""
    try:
        work = in_thread(partial(remember, caller, conversation))
        return await asyncio.wait_for(work, settings.CHAT.memory_timeout_seconds)
    except Exception as error:
        FAILURES.labels("load").inc()
        logger.warning("a call goes on without memory", error=type(error).__name__)
        return None


application = Starlette(
    routes=[Route("/v1/chat/completions", completions, methods=["POST"]), Route("/v1/models", models)],
    exception_handlers={ChatError: answer_error, HTTPException: answer_http_error},
)
