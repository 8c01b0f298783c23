"""Relay a call. Pass the upstream's answer on as it arrives, but hold back its end until the round is stored.

The upstream is the model to which calls are forwarded. Its URL and key come only from settings.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import anyio
import httpx2
from django.conf import settings
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from moments_app.interfaces.chat.errors import ChatError, error_body
from moments_app.interfaces.chat.protocols import PROTOCOLS, Protocol
from moments_app.interfaces.chat.rounds import READ_BYTES, WriteAhead
from sessions_app.text.chat_messages import without_empty

# Response headers to relay in addition to rate limits, because clients act on them.
RELAYED_HEADERS = (
    "content-type",
    "content-length",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
)
CONNECT_SECONDS = 10.0  # seconds to connect to the upstream
RATE_LIMIT_PREFIX = "x-ratelimit-"
UPSTREAM_ID = "x-upstream-request-id"  # the upstream's X-Request-Id; the platform has its own

# All errors that a call can raise. Their messages may contain any text.
UPSTREAM_ERRORS = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError)

OUTCOME = "X-Memory-Stored"

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()


@asynccontextmanager
async def call_upstream(method: str, path: str, body: bytes | None = None) -> AsyncIterator[httpx2.Response]:
    """Call the upstream. Yield the response once its headers have arrived, and close it at the end.

    Raises:
        ChatError: no upstream is configured, it can't be reached, or it redirects.
    """
    conf = settings.CHAT
    if not conf.upstream_base_url:
        raise ChatError(503, "no_upstream", "No model endpoint is configured. Set CHAT__UPSTREAM_BASE_URL.")
    try:
        request = _client().build_request(
            method, f"{conf.upstream_base_url.rstrip('/')}{path}", content=body, headers=_headers(), timeout=_timeout()
        )
        response = await _client().send(request, stream=True)
    except UPSTREAM_ERRORS as error:
        raise upstream_error(error) from None
    try:
        if response.is_redirect:
            raise ChatError(
                502,
                "upstream_redirects",
                "The model endpoint answered with a redirect, which is not followed. Check CHAT__UPSTREAM_BASE_URL.",
            )
        yield response
    finally:
        await response.aclose()


def upstream_error(error: Exception) -> ChatError:
    """Return an error for the caller. It describes the kind of failure, and never quotes the upstream."""
    if isinstance(error, httpx2.TimeoutException):
        return ChatError(504, "upstream_timeout", "The model endpoint did not respond in time.")
    return ChatError(
        502,
        "upstream_unavailable",
        f"The model endpoint can't be reached ({type(error).__name__}). Check CHAT__UPSTREAM_BASE_URL.",
    )


def relayed_headers(response: httpx2.Response) -> dict[str, str]:
    """Return the headers to relay. A compressed response is relayed uncompressed, without its length."""
    own = {UPSTREAM_ID: response.headers.get("x-request-id", "")}
    if "content-encoding" in response.headers:
        own["content-length"] = ""
    headers = response.headers.items()
    relayed = {name: value for name, value in headers if name in RELAYED_HEADERS or name.startswith(RATE_LIMIT_PREFIX)}
    return without_empty(relayed | own)


def _client() -> httpx2.AsyncClient:
    """Return the HTTP client of this event loop. It keeps connections open and ignores proxies in the environment."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        _clients[loop] = httpx2.AsyncClient(limits=limits, trust_env=False, follow_redirects=False)
    return _clients[loop]


async def close_upstream() -> None:
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


def _headers() -> dict[str, str]:
    key = settings.CHAT.upstream_api_key.get_secret_value()
    # Request no compression, because the answer is read while it is relayed, and decompressing takes time.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def _timeout() -> httpx2.Timeout:
    return httpx2.Timeout(settings.CHAT.read_timeout_seconds, connect=CONNECT_SECONDS)


class StreamEnd:
    """A buffer that holds back the end of a stream: the last event, and everything after it.

    An incomplete line is held back only if it may be the start of the last event.

    Args:
        prefixes: prefixes by which the last event is recognized.
    """

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self.held = b""
        self.is_found = False
        self._is_in_line = False
        self._prefixes = prefixes
        self._end = re.compile(rb"^(?:%b)" % b"|".join(map(re.escape, prefixes)), re.MULTILINE)

    def feed(self, chunk: bytes) -> bytes:
        """Add received bytes. Return the bytes that can be passed on now."""
        data, self.held = self.held + chunk, b""
        if self.is_found:
            self.held = data
            return b""
        start = data.find(b"\n") + 1 or len(data) if self._is_in_line else 0
        found = self._end.search(data, start)
        if found:
            self.is_found = True
            return self._split(data, found.start())
        line = max(start, data.rfind(b"\n") + 1)
        is_beginning = any(end.startswith(data[line:]) for end in self._prefixes)
        passed = self._split(data, line if is_beginning else len(data))
        if passed:
            self._is_in_line = not passed.endswith(b"\n")
        return passed

    def _split(self, data: bytes, place: int) -> bytes:
        self.held = data[place:]
        return data[:place]


@dataclass
class Relay:
    """An ASGI application that relays the answer to one call."""

    ahead: WriteAhead
    body: bytes  # the request to send to the upstream
    headers: dict[str, str]  # response headers that report on memory
    _incomplete: str = "client_disconnected"  # why the answer is incomplete, unless an error gives another reason

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
                await self._relay(scope, receive, send)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._store()
                await self.ahead.retry()

    async def _relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with call_upstream("POST", self._protocol.path, self.body) as response:
                is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
                self.ahead.set_response(response.status_code, is_stream=is_stream)
                await (self._relay_stream if is_stream else self._relay_whole)(response, send)
        except ChatError as error:
            self._incomplete = error.code
            headers = self._memory_headers(await self._store())
            await JSONResponse(error_body(error), error.status, headers)(scope, receive, send)

    @property
    def _protocol(self) -> Protocol:
        return PROTOCOLS[self.ahead.round.protocol]

    async def _store(self) -> str:
        return self.ahead.outcome or await self.ahead.store_answer(self._incomplete)

    def _memory_headers(self, outcome: str) -> dict[str, str]:
        return self.headers | {"X-Memory-Round": self.ahead.round.round_id, OUTCOME: outcome}

    async def _send_headers(self, response: httpx2.Response, send: Send, outcome: str) -> None:
        headers = relayed_headers(response) | self._memory_headers(outcome)
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status_code, "headers": raw})

    # --- a stream of events ---

    async def _relay_stream(self, response: httpx2.Response, send: Send) -> None:
        """Relay events as they arrive, except the last.

        The headers are sent before the answer is stored, so they only report whether the message is stored.
        """
        await self._send_headers(response, send, self.ahead.message_outcome)
        end = StreamEnd(self._protocol.endings)
        try:
            async for chunk in response.aiter_bytes():
                self.ahead.add_part(chunk)
                if passed := end.feed(chunk):
                    await send(_body(passed, more=True))
                if end.is_found and end.held:
                    await send(_body(await self._end(end), more=True))
        except UPSTREAM_ERRORS as error:
            failure = upstream_error(error)
            event = b"\n\ndata: " + json.dumps(error_body(failure)).encode() + b"\n\n"
            await send(_body(await self._end(end, failure.code) + event, more=False))
        else:
            await send(_body(await self._end(end), more=False))

    async def _end(self, end: StreamEnd, incomplete: str = "") -> bytes:
        """Store the round.

        Return the held-back bytes. If the outcome differs from the headers, a comment before these bytes reports it.
        """
        self._incomplete = incomplete
        is_reported = bool(self.ahead.outcome)
        outcome = await self._store()
        held, end.held = end.held, b""
        if is_reported or outcome == self.ahead.message_outcome:
            return held
        return f": {OUTCOME}: {outcome}\n\n".encode() + held

    # --- other responses ---

    async def _relay_whole(self, response: httpx2.Response, send: Send) -> None:
        """Buffer a response until it is complete. If it is too long to store, relay the rest as it arrives."""
        held = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                self.ahead.add_part(chunk)
                held += chunk
                if len(held) > READ_BYTES:
                    await self._send_held(response, send, held, "too_long")
        except UPSTREAM_ERRORS as error:
            await self._send_held(response, send, held, upstream_error(error).code)  # the response is incomplete
        else:
            await self._send_held(response, send, held, "")
            await send(_body(b"", more=False))

    async def _send_held(self, response: httpx2.Response, send: Send, held: bytearray, incomplete: str) -> None:
        is_first = not self.ahead.outcome
        self._incomplete = incomplete
        outcome = await self._store()
        if is_first:
            await self._send_headers(response, send, outcome)
        await send(_body(bytes(held), more=True))
        held.clear()


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return scope.cancel()


def _body(chunk: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": more}
