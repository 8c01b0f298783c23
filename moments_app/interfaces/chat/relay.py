"""One call passed on: the upstream's answer goes to the caller as it comes, and the round is stored behind it."""

import asyncio
import json
from dataclasses import dataclass, field

import anyio
import httpx2
import structlog
from django.db import DatabaseError
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from moments_app.interfaces.chat import upstream
from moments_app.interfaces.chat.answer import read_answer
from moments_app.interfaces.chat.errors import ChatError, error_body
from moments_app.interfaces.chat.figures import FAILURES
from moments_app.interfaces.chat.headers import ChatSession
from moments_app.interfaces.chat.memory import SOURCE, store
from moments_app.interfaces.chat.request import ChatRequest
from moments_app.interfaces.chat.threads import in_thread
from sessions_app.imports.records import filled
from sessions_app.transcript.append_round import INCOMPLETE

READ_BYTES = 16_777_216  # of an answer that is read to be stored; all of it is passed on
RETRY_SECONDS = (0.5, 2.0, 10.0)  # to wait before each further try of storing a round

logger = structlog.get_logger(__name__)


@dataclass
class Relay:
    """An ASGI application that answers one call.

    Args:
        session: that the round is part of.
        request: as it was sent.
        body: for the upstream.
        headers: of the answer, about memory.
    """

    session: ChatSession
    request: ChatRequest
    body: bytes
    headers: dict[str, str]
    _answer: bytearray = field(default_factory=bytearray)
    _status: int = 0
    _is_stream: bool = False
    _incomplete: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._incomplete = "client_disconnected"  # unless something else becomes of it
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end_with_caller, receive, tasks.cancel_scope)
                await self._pass_on(scope, receive, send)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._store()

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with upstream.opened("POST", "/chat/completions", self.body) as response:
                await self._begin(response, send)
                await self._continue(response, send)
        except ChatError as error:
            self._incomplete = error.code
            await JSONResponse(error_body(error), error.status, self.headers)(scope, receive, send)

    async def _begin(self, response: httpx2.Response, send: Send) -> None:
        self._status = response.status_code
        self._is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        headers = upstream.passed_on(response) | self.headers
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status_code, "headers": raw})

    async def _continue(self, response: httpx2.Response, send: Send) -> None:
        try:
            async for chunk in response.aiter_raw():
                await send(_body(chunk, more=True))
                self._answer += chunk[: READ_BYTES - len(self._answer)]
        except upstream.BROKEN as error:
            await self._break_off(upstream.broken(error), send)
        else:
            self._incomplete = ""
            await send(_body(b"", more=False))

    async def _break_off(self, error: ChatError, send: Send) -> None:
        """End a stream with an event that says so; any other answer without its end, which closes the connection."""
        self._incomplete = error.code
        if self._is_stream:
            await send(_body(b"\n\ndata: " + json.dumps(error_body(error)).encode() + b"\n\n", more=False))

    async def _store(self) -> None:
        if 400 <= self._status < 500:
            return None  # refused: there was no round
        for wait in (*RETRY_SECONDS, None):
            try:
                return await in_thread(self._store_round)
            except DatabaseError as error:
                failure: Exception = error
            except Exception as error:
                failure, wait = error, None
            if wait is None:
                break
            await asyncio.sleep(wait)
        FAILURES.labels("store").inc()
        logger.error("a round was not stored", error=type(failure).__name__, status=self._status)

    def _store_round(self) -> None:
        answer = read_answer(bytes(self._answer), is_stream=self._is_stream)
        # Some callers hang up as soon as they have read the end, before it is passed on that there is no more.
        why = "" if answer.finish_reason else self._incomplete or "unfinished"
        turn = answer.turn(filled({"source": SOURCE, INCOMPLETE: why}), is_whole=not why)
        store(self.session, self.request, turn, unanswered="" if turn else why)


async def _end_with_caller(receive: Receive, scope: anyio.CancelScope) -> None:
    """End the call when its caller hangs up."""
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return scope.cancel()


def _body(chunk: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": more}
