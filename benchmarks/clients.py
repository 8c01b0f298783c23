"""Clients that send one request after another, each in its own process, which needs little CPU time.

Such a process imports only this module and `raw.py`, but not Django.
"""

import itertools
import json
import multiprocessing
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self, TypeVar

WORDS = "We moved the studio to Turin in March, the kiln is due on the 4th, and Marta asked for the invoice again. "
STOP_TIMEOUT = 10  # seconds

T = TypeVar("T")
Step = Callable[[], object]


class ClientWork(Protocol):
    """The work that a client repeats."""

    def connected(self, client: int) -> Step:
        """Connect, and return the function that does the work once."""


@dataclass(frozen=True)
class HttpAppend:
    """Posts a batch of messages to a session. Each client has its own person and session."""

    port: int
    key: str
    batch: int = 1

    def connected(self, client: int) -> Step:
        http = Http(self.port, self.key)
        path = f"/api/v1/sessions/http-{client}-of-{self.batch}/messages"
        numbers = itertools.count()

        def post() -> None:
            messages = [
                {"role": "user", "content": WORDS, "external_id": f"m{next(numbers)}-{time.monotonic_ns()}"}
                for _ in range(self.batch)
            ]
            http.request("POST", path, {"user_id": f"http-{client}", "messages": messages})

        return post


@dataclass(frozen=True)
class FirstByte:
    """Calls a chat model, up to the first byte of the streamed answer. Each client has its own person and session.

    Args:
        port, key: The port and key of the model or the platform.
        pause: The maximum seconds to wait before each call. They simulate people, and are not counted.
    """

    port: int
    key: str
    pause: float = 0

    def connected(self, client: int) -> Step:
        numbers = itertools.count()
        streams: list[Stream] = []

        def ask() -> float:
            if streams:
                streams.pop().close()
            time.sleep(random.uniform(0, self.pause))
            started = time.perf_counter()
            streams.append(Stream(self.port, self.key, f"chat-{client}", f"{WORDS} {next(numbers)}"))
            return time.perf_counter() - started

        return ask


class Stream:
    """An open streamed answer on its own connection."""

    def __init__(self, port: int, key: str, session: str, message: str) -> None:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": message}]}
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
            f"X-User-Id: {session}\r\nX-Session-Id: {session}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(head.encode() + content)
        self._answer = b""
        while b"data:" not in self._answer:
            self._read()

    def close(self) -> None:
        """Read the rest of the answer, and close the connection."""
        while not self._answer.endswith(b"\r\n0\r\n\r\n"):
            self._read()
        self._socket.close()

    def _read(self) -> None:
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionError(self._answer[:500].decode())
        self._answer += part


class Http:
    """A persistent connection that parses a response only as far as needed to find its end.

    Args:
        port: The port of the site.
        key: The API key. Blank if a cookie is sent.
        cookie: The session cookie of a login.
    """

    def __init__(self, port: int, key: str, *, cookie: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        who = f"Cookie: {cookie}" if cookie else f"Authorization: Bearer {key}"
        self._headers = f"Host: localhost\r\n{who}\r\nContent-Type: application/json\r\n"

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """Send a request, and return the body of the response.

        Raises:
            RuntimeError: The request failed.
        """
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(content)}\r\n\r\n"
        self._socket.sendall(head.encode() + content)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._received()
        answer_head, _, answer_body = answer.partition(b"\r\n\r\n")
        length = int(answer_head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(answer_body) < length:
            answer_body += self._received()
        if not answer_head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201", b"HTTP/1.1 202")):
            raise RuntimeError(f"{answer_head.decode()}\n{answer_body[:500].decode()}")
        return answer_body

    def close(self) -> None:
        self._socket.close()

    def _received(self) -> bytes:
        part = self._socket.recv(1 << 18)
        if not part:
            raise ConnectionError("The server closed the connection.")
        return part


class Clients:
    """Client processes that are connected and wait for the start."""

    def __init__(self, work: ClientWork, count: int) -> None:
        self._work, self._count = work, count

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for client in range(self._count):
            pipe, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(self._work, client, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(pipe)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(STOP_TIMEOUT)
            if process.is_alive():
                process.kill()

    def run(self, seconds: float) -> list[float]:
        """Run all clients concurrently for some seconds. Return the duration of each request."""
        for pipe in self._pipes:
            pipe.send(seconds)
        return [taken for pipe in self._pipes for taken in pipe.recv()]


def _serve(work: ClientWork, client: int, pipe: Connection) -> None:
    step = work.connected(client)
    step()
    pipe.send("ready")
    while True:
        try:
            seconds = pipe.recv()
        except EOFError:
            return
        times = []
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            times.append(timed(step))
        pipe.send(times)


def timed(step: Step) -> float:
    """Return the seconds that a step takes, or that it reports itself."""
    started = time.perf_counter()
    counted = step()
    return counted if isinstance(counted, float) else time.perf_counter() - started
