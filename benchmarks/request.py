"""CPU time of the web process for one request: `python -m benchmarks.request`, or with the name of a case.

Six requests run in this process, through the whole application except the HTTP server. Figures are CPU milliseconds,
divided by the seconds that ten million loops of `x += i` take just before and after, so they are meaningful on any
machine. Of several rounds, the 10th percentile counts, because other programs only add time. With a name, the profile
of this request is printed.
"""

import asyncio
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import django

from benchmarks.site import Site

ROUNDS, CALLS = 20, 15
TURNS = 200
LINES = 40  # of a profile
KEY = "BENCHMARK_KEY"  # environment variable with the site's key for the measured process

Call = Callable[[], Coroutine[Any, Any, bytes]]


class Client:
    """Calls the application like a server.

    Args:
        key: A key of scope `write`.
    """

    def __init__(self, key: str) -> None:
        from memoryproject.asgi import application

        self._application = application
        self._headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {key}".encode())]

    async def call(self, method: str, address: str, body: Any = None) -> bytes:
        """Return the response to a call, which must succeed."""
        path, _, query = address.partition("?")
        sent = json.dumps(body).encode() if body else b""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())]
        scope: Any = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
        scope |= {"method": method, "path": path, "query_string": query.encode(), "root_path": ""}
        scope |= {"headers": [*self._headers, *headers], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
        answer: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            answer.append(message)

        await self._application(scope, receive, send)
        if answer[0]["status"] >= 300:
            raise RuntimeError(f"{method} {path}: {answer[0]['status']}")
        return b"".join(message.get("body", b"") for message in answer)


def cases(client: Client) -> dict[str, Call]:
    """Return the calls by name, for a person with one session of `TURNS` turns."""
    person = {"user_id": "ada"}
    said = {"messages": [{"role": "user", "content": "Today I fired the kiln."}]}
    context = "/api/v1/memory/context?user_id=ada&session_id=s1"
    return {
        "session": lambda: client.call("GET", "/api/v1/sessions/s1?user_id=ada"),
        "append": lambda: client.call("POST", "/api/v1/sessions/s2/messages", person | said),
        "live view": lambda: client.call("GET", "/api/v1/sessions/s1/messages?user_id=ada"),
        "context": lambda: client.call("GET", f"{context}&retrieval=off&query=kiln"),
        "context with query": lambda: client.call("GET", f"{context}&query=kiln+1100"),
        "search": lambda: client.call("POST", "/api/v1/memory/search", person | {"query": "kiln 1100 degrees"}),
    }


async def seed(client: Client) -> None:
    """Append the messages to search."""
    turns = [f"Today I fired the kiln at {1000 + n} degrees, glaze {n}." for n in range(TURNS)]
    messages = [{"role": "user", "content": turn} for turn in turns]
    await client.call("POST", "/api/v1/sessions/s1/messages", {"user_id": "ada", "messages": messages})


def unit() -> float:
    """Return the CPU seconds that ten million iterations of a loop take now."""
    began, x = time.process_time(), 0
    for i in range(1_000_000):
        x += i
    return (time.process_time() - began) * 10


async def measured(call: Call) -> float:
    """Return a call's CPU time in milliseconds, divided by `unit`."""
    await call()
    before, began = unit(), time.process_time()
    for _ in range(CALLS):
        await call()
    took = time.process_time() - began
    return took * 1000 / CALLS / ((before + unit()) / 2)


async def figures(calls: dict[str, Call]) -> None:
    """Print the 10th percentile and the median of all rounds, in which the cases take turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            found[name].append(await measured(call))
    for name, values in found.items():
        print(f"{name:20} {statistics.quantiles(values, n=10)[0]:6.1f}  median {statistics.median(values):6.1f}")


async def profile(call: Call) -> None:
    """Print the functions that a call spends the most time in."""
    from memoryproject import asgi

    profiler = cProfile.Profile()
    run = asgi._in_threads._application

    def profiled(*arguments: Any) -> Any:
        return profiler.runcall(run, *arguments)

    await call()
    asgi._in_threads._application = profiled
    for _ in range(CALLS):
        await call()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(LINES)


async def main(names: list[str], key: str) -> None:
    """Run the cases named on the command line."""
    client = Client(key)
    await seed(client)
    calls = cases(client)
    if names:
        await profile(calls[" ".join(names)])
    else:
        await figures(calls)


def in_another_process(arguments: list[str]) -> None:
    """Create a site, and run this in a process with the database login of web servers."""
    with Site() as site:
        environment = os.environ | {"MEMORY_PROCESS": "web", KEY: site.key}
        subprocess.run([sys.executable, "-m", "benchmarks.request", *arguments], env=environment, check=True)


if __name__ == "__main__":
    if KEY in os.environ:
        django.setup()
        asyncio.run(main(sys.argv[1:], os.environ[KEY]))
    else:
        in_another_process(sys.argv[1:])
