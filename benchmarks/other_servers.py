"""Requests to this platform, Hindsight and Honcho, side by side: `python -m benchmarks.other_servers`.

The servers already run on this machine, with the same embeddings model. Their databases flush each commit to disk. All
get the same real conversations. When a response acknowledges two messages, each server has stored something else:

- This platform: the messages, their words for searches, and the jobs that are due, in one transaction.
- Honcho: the messages. A search by words finds them. Honcho queues their processing after the response. If it is killed
  before that, the messages are never processed.
- Hindsight (`async`): a job with their text. No search finds them until a model has extracted facts from them.

No search or context calls a language model. Hindsight has no request for a context, so its context is a search too.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

from benchmarks.clients import Http, timed
from benchmarks.conversations import read_folder
from benchmarks.figures import print_markdown
from benchmarks.request import API, LOAD_COLUMNS, Sent
from benchmarks.steady import CONVERSATIONS

BANKS, WORKSPACES = "/v1/default/banks", "/v3/workspaces"
SIZES = (200, 2000)  # messages of the people whose memory is searched
SESSION = 20  # messages per session and request while these are stored
CLIENTS = (1, 8)
ROUNDS, SECONDS = 3, 3  # measurements per server and number of clients, and the seconds of each
QUIET = 3  # consecutive checks without work until a server counts as idle
AT_MOST = 1800  # maximum seconds until a server is idle
TITLE = "Requests to several memory servers"
NOTE = (
    f"Two messages: {ROUNDS} times {SECONDS} seconds per server, in turn. After each measurement, the server processes "
    "the messages. Search and context: one client sends each question to all servers in turn, while none has work. "
    "There are {count} questions per line, so p99 is almost the maximum."
)

Message = dict[str, str]


@dataclass(frozen=True)
class MemoryServer:
    port: int
    key: str = ""

    def get(self, path: str) -> Any:
        with closing(Http(self.port, self.key)) as http:
            return json.loads(http.request("GET", path))


class ThisPlatform(MemoryServer):
    def append(self, person: str, session: str, messages: list[Message]) -> Sent:
        return "POST", f"{API}/sessions/{session}/messages", {"user_id": person, "messages": messages}

    def search(self, person: str, query: str) -> Sent:
        return "POST", f"{API}/memory/search", {"user_id": person, "query": query}

    def context(self, person: str, session: str, query: str) -> Sent:
        asked = urlencode({"user_id": person, "session_id": session, "query": query})
        return "GET", f"{API}/memory/context?{asked}", None

    def has_work(self, person: str) -> bool:
        jobs = f"{API}/jobs?user_id={person}&limit=1&status="
        return any(self.get(jobs + status)["total"] for status in ("queued", "processing"))


class Hindsight(MemoryServer):
    def append(self, person: str, session: str, messages: list[Message]) -> Sent:
        text = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
        return "POST", f"{BANKS}/{person}/memories", {"async": True, "items": [{"content": text}]}

    def search(self, person: str, query: str) -> Sent:
        return "POST", f"{BANKS}/{person}/memories/recall", {"query": query}

    def context(self, person: str, session: str, query: str) -> Sent:
        return self.search(person, query)

    def has_work(self, person: str) -> bool:
        operations = f"{BANKS}/{person}/operations?limit=1&status="
        return any(self.get(operations + status)["total"] for status in ("pending", "processing"))


class Honcho(MemoryServer):
    def append(self, person: str, session: str, messages: list[Message]) -> Sent:
        by_peers = [{"peer_id": message["role"], "content": message["content"]} for message in messages]
        return "POST", f"{WORKSPACES}/{person}/sessions/{session}/messages", {"messages": by_peers}

    def search(self, person: str, query: str) -> Sent:
        return "POST", f"{WORKSPACES}/{person}/search", {"query": query}

    def context(self, person: str, session: str, query: str) -> Sent:
        asked = urlencode({"peer_target": "user", "search_query": query})
        return "GET", f"{WORKSPACES}/{person}/sessions/{session}/context?{asked}", None

    def has_work(self, person: str) -> bool:
        status = self.get(f"{WORKSPACES}/{person}/queue/status")
        return any([status["pending_work_units"], status["in_progress_work_units"]])


Server = ThisPlatform | Hindsight | Honcho


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.other_servers", description=__doc__)
    parser.add_argument("port", type=int, help="port of this platform")
    parser.add_argument("key", help="API key of this platform")
    parser.add_argument("--hindsight", type=int, metavar="PORT")
    parser.add_argument("--honcho", type=int, metavar="PORT")
    options = parser.parse_args(arguments)
    servers: list[Server] = [ThisPlatform(options.port, options.key)]
    servers += [Hindsight(options.hindsight)] if options.hindsight else []
    servers += [Honcho(options.honcho)] if options.honcho else []
    conversations = read_folder(CONVERSATIONS)
    said = [each for one in conversations for session in one.sessions for each in one.messages(session)]
    messages = [{"role": each["role"], "content": each["content"]} for each in said]
    questions = [question.q for conversation in conversations for question in conversation.questions]
    note = NOTE.format(count=len(questions) // (2 * len(SIZES)))
    print_markdown(TITLE, ["server", *LOAD_COLUMNS], _rows(servers, messages, questions), note)
    return 0


def _rows(servers: list[Server], messages: list[Message], questions: list[str]) -> Iterator[list[str]]:
    run = f"run-{time.time():.0f}"
    for clients in CLIENTS:
        yield from _appends(servers, f"{run}-of-{clients}", messages, clients)
    for number, size in enumerate(SIZES):
        for server in servers:
            with closing(Http(server.port, server.key)) as http:
                for start in range(0, size, SESSION):
                    part = list(islice(cycle(messages), start, start + SESSION))
                    http.request(*server.append(f"{run}-{size}", f"session-{start // SESSION}", part))
            _wait_until_idle(server, [f"{run}-{size}"])
        yield from _reads(servers, f"{run}-{size}", size, questions[number :: len(SIZES)])


def _appends(servers: list[Server], run: str, messages: list[Message], clients: int) -> Iterator[list[str]]:
    times: dict[Server, list[float]] = defaultdict(list)
    for number in range(ROUNDS):
        people = [f"{run}-{number}-{client}" for client in range(clients)]
        for server in servers:
            with ThreadPoolExecutor(clients) as pool:
                for taken in pool.map(partial(_append, server, messages), people):
                    times[server] += taken
            _wait_until_idle(server, people)
    for server, taken in times.items():
        yield _row(server, f"two messages, clients: {clients}", taken, ROUNDS * SECONDS)


def _append(server: Server, messages: list[Message], person: str) -> list[float]:
    """Repeatedly store two messages. Return the durations, without the first request, which creates the person."""
    turns, times = cycle(messages), []
    with closing(Http(server.port, server.key)) as http:
        http.request(*server.append(person, "talk", list(islice(turns, 2))))
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            request = server.append(person, "talk", list(islice(turns, 2)))
            times.append(timed(partial(http.request, *request)))
    return times


def _reads(servers: list[Server], person: str, size: int, questions: list[str]) -> Iterator[list[str]]:
    session = f"session-{size // SESSION - 1}"
    for number, kind in enumerate(("search", "context")):
        times: dict[Server, list[float]] = defaultdict(list)
        for question in questions[number::2]:
            for server in servers:
                search, context = server.search(person, question), server.context(person, session, question)
                request = search if kind == "search" else context
                with closing(Http(server.port, server.key)) as http:
                    times[server].append(timed(partial(http.request, *request)))
        for server, taken in times.items():
            yield _row(server, f"{kind}, messages: {size:,}", taken, sum(taken))


def _wait_until_idle(server: Server, people: list[str]) -> None:
    """Wait until a server has processed all messages of some people. Raise `RuntimeError` if this takes too long."""
    quiet, deadline = 0, time.monotonic() + AT_MOST
    while quiet < QUIET:
        time.sleep(1)
        quiet = 0 if any(server.has_work(person) for person in people) else quiet + 1
        if time.monotonic() > deadline:
            raise RuntimeError(f"{type(server).__name__} has not processed all messages in time.")


def _row(server: Server, what: str, times: list[float], seconds: float) -> list[str]:
    ms = [taken * 1000 for taken in times]
    p99 = quantiles(ms, n=100, method="inclusive")[-1]
    return [type(server).__name__, what, f"{len(ms) / seconds:.1f}", f"{median(ms):.1f}", f"{p99:.1f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
