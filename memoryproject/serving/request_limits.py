"""The part of a web process between the event loop and its few threads.

The event loop reads the whole request, within a deadline, before a thread handles it. The thread only computes the
response. It doesn't wait for a slow client. Requests for one session get at most half of the threads, so a locked
session doesn't block the others. Requests for one person get at most three quarters. Requests of one key or application
get all threads except one, or a single thread while callers that used less are active (`fair_shares.py`). A request
gets 503 if no thread becomes free for a while, if the database does not respond, or if its deadline passes. The event
loop itself handles health checks.
"""

import asyncio
import contextvars
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import chain
from typing import IO, Any, cast
from urllib.parse import parse_qs, unquote_to_bytes
from weakref import WeakKeyDictionary, WeakValueDictionary

from a2wsgi.wsgi import build_environ
from django.conf import settings
from starlette.types import Message, Receive, Scope, Send

from memoryproject.database.probe import PROBE, DeadlinePassed
from memoryproject.serving.fair_shares import FAIR_SHARES, UNKNOWN_CALLER, Caller, Refused, caller, charge_caller
from sessions_app.database.transactions import deadline
from sessions_app.process_cache import VERIFIED, hash_of
from sessions_app.refusals import error_data

Environ = dict[str, Any]
Header = tuple[bytes, bytes]
_Write = Callable[[bytes], None]
StartResponse = Callable[..., _Write]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

BODY_SECONDS = 30  # maximum seconds until a body is complete
MAX_IN_MEMORY = 1_000_000  # maximum bytes of a body in memory; a larger body is stored in a file
MAX_UNSTREAMED = 1_000_000  # maximum bytes of an unstreamed response; a longer one is streamed
READ_SECONDS = 60  # maximum seconds until a client has read a part of a streamed response
WAIT_SECONDS = 10.0  # maximum wait for a thread
STALLED_SECONDS = 3.0  # seconds without a free thread, after which the queue counts as stalled
STALLED_WAIT = 0.3  # maximum wait in a stalled queue
RESERVED_THREADS = 1  # number of threads reserved for other applications

_KEY = re.compile(rb"bearer (mem_\S+)", re.IGNORECASE)
KEY_OF_A_PERSON = re.compile(rb"bearer mem_(u[0-9a-f]+)_", re.IGNORECASE)
FIRST_APPLICATION = "first"  # stands for the first application, whose primary key is not stored in `VERIFIED`
_ONLY_READ = ("GET", "HEAD", "OPTIONS")
IDENTITY_HEADERS = ("Authorization", "X-User-Id", "X-Session-Id", "X-Agent-Id")
IDENTITY_PARAMETERS = ("user_id", "session_id", "agent_id")


class RequestAbandoned(Exception):
    """The client disconnected before its request was complete, or the server abandoned the request."""


class Threads:
    """The threads of an event loop, shared so that no caller occupies all of them.

    Args:
        number: The number of threads that one application may use. One more thread is reserved for others.
    """

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number + RESERVED_THREADS)
        self._of_a_session, self._of_a_person = max(number // 2, 1), max(number * 3 // 4, 1)
        self._of_a_caller = number
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._moved_at = time.monotonic()

    @asynccontextmanager
    async def occupy(self, session: str, person: str, caller: Caller) -> AsyncIterator[None]:
        """Occupy a thread while the block runs, or raise `Refused`.

        Args:
            session: The session whose row the request may have to wait for, or a blank string.
        """
        # Wait for the session first. A request that waits for its session must not occupy a thread that the person's
        # other sessions could use.
        own = [self._share(session, self._of_a_session), self._share(person, self._of_a_person)]
        taken: list[asyncio.Semaphore] = []
        try:
            for share in chain(own, self._shares_of(caller), [self._free]):
                await self._acquire(share)
                taken.append(share)
            self._moved_at = time.monotonic()
            try:
                async with charge_caller():
                    yield
            finally:
                self._moved_at = time.monotonic()
        finally:
            for share in reversed(taken):
                share.release()

    @asynccontextmanager
    async def occupy_share(self, caller: Caller) -> AsyncIterator[None]:
        """Occupy one of the caller's threads while the block runs. Wait for it without a time limit."""
        async with AsyncExitStack() as stack:
            for share in self._shares_of(caller):
                await stack.enter_async_context(share)
            yield

    def _shares_of(self, caller: Caller) -> Iterator[asyncio.Semaphore]:
        for kind, name in caller.names.items():
            if FAIR_SHARES.must_yield(kind, name):
                yield self._share(f"yielding {kind} {name}", 1)
            yield self._share(name and f"{kind} {name}", self._of_a_caller)

    def _share(self, subject: str, limit: int) -> asyncio.Semaphore:
        share = asyncio.Semaphore(limit)
        return self._shares.setdefault(subject, share) if subject else share

    async def _acquire(self, semaphore: asyncio.Semaphore) -> None:
        """Acquire a semaphore, or raise `Refused` after `WAIT_SECONDS`, at the deadline, or if the queue is stalled."""
        began, ends = time.monotonic(), deadline()
        while semaphore.locked():
            try:
                await asyncio.wait_for(semaphore.acquire(), STALLED_WAIT)
            except TimeoutError:
                now = time.monotonic()
                is_late = ends is not None and ends.left <= 0
                if is_late or now - began > WAIT_SECONDS or now - self._moved_at > STALLED_SECONDS:
                    raise Refused(503, "busy", "The server is busy. Try again in a moment.") from None
            else:
                return
        await semaphore.acquire()  # returns immediately, because the semaphore isn't locked


async def read_body(scope: Scope, receive: Receive, *, limit: int) -> IO[bytes]:
    """Read a request's body. If its declared length is over the limit, reject it without reading.

    Raises:
        Refused: The body is longer, or did not arrive within `BODY_SECONDS`.
        RequestAbandoned: The client disconnected.
    """
    declared = dict(scope["headers"]).get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise Refused(
            413,
            "too_large",
            f"The body has {int(declared)} bytes; the limit is {limit}. Send fewer messages per request.",
        )
    body = tempfile.SpooledTemporaryFile(MAX_IN_MEMORY)  # noqa: SIM115 (whoever asked closes it)
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAbandoned
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise Refused(
                        413,
                        "too_large",
                        f"The body is longer than the limit of {limit} bytes. Send fewer messages per request.",
                    )
                body.write(part)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise Refused(408, "too_slow", f"The body did not arrive within {BODY_SECONDS} s. Try again.") from None
    body.seek(0)
    return body


def replay_body(body: IO[bytes], receive: Receive) -> Receive:
    """Return a `receive` that yields a stored body, and then later messages."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body.read(), "more_body": False}

    return again


def refuse_ambiguous(headers: Iterable[Header], query: bytes) -> None:
    """Raise `Refused` if a request names a person, session or agent twice, because code could use either value."""
    sent = Counter(name for name, _ in headers)
    for name in IDENTITY_HEADERS:
        if sent[name.lower().encode()] > 1:
            raise Refused(400, "ambiguous_header", f"{name} was sent more than once. Send it once.")
    named = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    for name in IDENTITY_PARAMETERS:
        if len(named.get(name, ())) > 1:
            raise Refused(400, "ambiguous_parameter", f"{name} was sent more than once. Send it once.")


def refuse_undecodable(path: bytes, query: bytes) -> None:
    """Raise `Refused` if a URL is not UTF-8. Decoding replaces invalid bytes, so two ids could become the same."""
    try:
        unquote_to_bytes(path).decode()
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise Refused(400, "not_utf8", "The URL is not UTF-8.") from None


def session_of(path: str) -> str:
    head, found, tail = path.partition("/sessions/")
    return f"{head}{found}{tail.partition('/')[0]}" if found else ""


def person_of(path: str, query: bytes, authorization: bytes) -> str:
    """Return a string that identifies the request's person, or "" if that requires the body or the database.

    A user's own key takes precedence over the `user_id`, so a user can't use up another person's share.
    """
    if key := KEY_OF_A_PERSON.match(authorization):
        return f"key {key[1].decode()}"
    tail = path.partition("/users/")[2]
    named = [tail.partition("/")[0]] if tail else parse_qs(query.decode("latin-1")).get("user_id", [""])
    return f"user {named[0]}" if named[0] else ""


def application_of(authorization: bytes) -> str:
    """Return the id of a key's application. Blank if it is unknown or the first application."""
    key = _KEY.match(authorization)
    return str(VERIFIED.application_of(key[1].decode("latin-1")) or "") if key else ""


def caller_of(authorization: bytes) -> Caller:
    key = _KEY.match(authorization)
    if not key:
        return UNKNOWN_CALLER
    secret = key[1].decode("latin-1")
    application = str(VERIFIED.application_of(secret) or FIRST_APPLICATION) if secret in VERIFIED else ""
    return Caller(hash_of(secret).hex(), application)


async def refuse(send: Send, refused: Refused) -> None:
    data = error_data(refused.status, refused.code, str(refused))
    more = [(name.lower().encode(), value.encode()) for name, value in refused.headers.items()]
    await answer_json(send, refused.status, data, more)


async def answer_json(send: Send, status: int, data: object, more: Sequence[Header] = ()) -> None:
    body = json.dumps(data).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class ThreadsOfLoops:
    """The threads of each event loop, because a semaphore belongs to one loop."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._threads: WeakKeyDictionary[asyncio.AbstractEventLoop, Threads] = WeakKeyDictionary()

    def current(self) -> Threads:
        return self._threads.setdefault(asyncio.get_running_loop(), Threads(self._number))


class Bridge:
    """Runs a WSGI application under ASGI.

    Bodies are read before a thread starts, and responses are sent when it is done.

    A response over `MAX_UNSTREAMED` bytes is streamed while it is created. Its thread then waits for the client, at
    most `READ_SECONDS` per part.

    If the database does not respond, requests fail early. A request that may have changed data waits, because the
    outcome is known only to the database.
    """

    def __init__(self, application: Application, threads: int) -> None:
        self._application = application
        self._threads = ThreadsOfLoops(threads)
        self._executor = ThreadPoolExecutor(threads + RESERVED_THREADS, thread_name_prefix="web")

    async def __call__(self, scope: Scope, body: IO[bytes], send: Send) -> None:
        """Serve a request, or raise `Refused` if it takes too long.

        Raise `DatabaseHangs` if the database does not respond.
        """
        PROBE.check()
        environ: Environ = dict(build_environ(cast(Any, scope), cast(Any, body)))
        loop = asyncio.get_running_loop()
        call = _Call(self._application, environ, send, loop)
        work = asyncio.ensure_future(self._run(call, self._threads.current(), scope))
        try:
            messages = await PROBE.result(work, partial(call.abandon, work), deadline())
        except DeadlinePassed:
            limit = settings.LIMITS.request_seconds
            text = f"The request took longer than {limit:g} s and was stopped. Try again in a moment."
            raise Refused(503, "busy", text) from None
        for message in messages:
            await send(message)

    async def _run(self, call: "_Call", threads: Threads, scope: Scope) -> list[Message]:
        path, authorization = scope["path"], dict(scope["headers"]).get(b"authorization", b"")
        # Two applications may use the same ids for people and sessions.
        names = session_of(path), person_of(path, scope["query_string"], authorization)
        session, person = (name and application_of(authorization) + name for name in names)
        async with threads.occupy(session, person, caller()):
            call.has_thread = True
            run = contextvars.copy_context().run
            return await asyncio.get_running_loop().run_in_executor(self._executor, run, call.run)


class _Call:
    """One request. `send` is awaited in the event loop. `has_thread` is set once a thread handles the request."""

    def __init__(self, application: Application, environ: Environ, send: Send, loop: asyncio.AbstractEventLoop) -> None:
        self._application, self._environ, self._send, self._loop = application, environ, send, loop
        self._start: Message = {}
        self._has_sent = self._is_abandoned = self.has_thread = False

    def abandon(self, work: "asyncio.Task[list[Message]]") -> bool:
        """Abandon the request if that is safe. Return whether it was abandoned.

        If no thread handles the request yet, cancel its task.
        """
        only_reads = self._environ["REQUEST_METHOD"] in _ONLY_READ and not self._has_sent
        self._is_abandoned = only_reads or not self.has_thread
        if not self.has_thread:
            work.cancel()
        return self._is_abandoned

    def run(self) -> list[Message]:
        """Compute the response. Return the messages that are still to be sent."""
        parts = self._application(self._environ, self._start_response)
        kept: list[bytes] = []
        size, is_streamed = 0, False
        try:
            for part in parts:
                kept.append(part)
                size += len(part)
                if size > MAX_UNSTREAMED:
                    self._stream(b"".join(kept), is_first=not is_streamed)
                    kept, size, is_streamed = [], 0, True
        finally:
            getattr(parts, "close", lambda: None)()
        end: Message = {"type": "http.response.body", "body": b"".join(kept)}
        return [end] if is_streamed else [self._start, end]

    def _start_response(self, status: str, headers: list[tuple[str, str]], exc_info: object = None) -> _Write:
        self._start = {
            "type": "http.response.start",
            "status": int(status.partition(" ")[0]),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
        return _no_write

    def _stream(self, part: bytes, *, is_first: bool) -> None:
        """Send a part, and wait for the client.

        Raises:
            TimeoutError: The client is slow.
            RequestAbandoned: The server has abandoned the request.
        """
        messages = [self._start] if is_first else []
        messages.append({"type": "http.response.body", "body": part, "more_body": True})
        for message in messages:
            asyncio.run_coroutine_threadsafe(self._sent(message), self._loop).result(READ_SECONDS)

    async def _sent(self, message: Message) -> None:
        if self._is_abandoned:
            raise RequestAbandoned
        self._has_sent = True
        if ends := deadline():
            ends.lift()
        await self._send(message)


def _no_write(_part: bytes) -> None:
    raise NotImplementedError("Django returns its answers.")
