"""Requests to this platform, Hindsight and Honcho, side by side: `python -m benchmarks.rivals --honcho URL`.

The servers already run on this machine, with the same embeddings model, and with databases that wait for the disk. All
get the same real conversations. When a response acknowledges two messages, the server has stored different things:

- This platform: the messages, their words for searches, and the jobs that are due, in one transaction.
- Honcho: the messages, which searches by words find. It queues their processing after the response. If its process is
  killed in between, nothing queues it again.
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
from urllib.parse import urlencode, urlsplit

from benchmarks.clients import Http, timed
from benchmarks.conversations import read_folder
from benchmarks.figures import print_markdown
from benchmarks.request import API, LOAD_COLUMNS, Sent
from benchmarks.steady import CONVERSATIONS

BANKS, WORKSPACES = "/v1/default/banks", "/v3/workspaces"
SIZES = (200, 2000)  # messages of the people whose memory is searched
SESSION = 20  # messages per session and request while these are stored
CLIENTS = (1, 8)
ROUNDS, SECONDS = 3, 3  # measurements of each server with so many clients, and their duration
QUIET, AT_MOST = 3, 1800  # looks without work until a server is idle, and the maximum seconds until then
TITLE = "Requests to several memory servers"
NOTE = (
    f"Two messages: {ROUNDS} times {SECONDS} seconds per server, in turn. After each time, the server processes the "
    "messages. Search and context: one client sends each question to all servers in turn, while none has work. There "
    "are {count} questions per line, so p99 is almost the maximum."
)

Message = dict[str, str]
Reads = tuple[Sent, Sent]  # a search and a context


@dataclass(frozen=True)
class Running:
    """A running memory server."""

    port: int
    key: str = ""

    def get(self, path: str) -> Any:
        with closing(Http(self.port, self.key)) as http:
            return json.loads(http.request("GET", path))


class Ours(Running):
    def append(self, person: str, session: str, messages: list[Message]) -> Sent:
        return "POST", f"{API}/sessions/{session}/messages", {"user_id": person, "messages": messages}

    def reads(self, person: str, session: str, query: str) -> Reads:
        search = {"user_id": person, "query": query}
        context = urlencode(search | {"session_id": session})
        return ("POST", f"{API}/memory/search", search), ("GET", f"{API}/memory/context?{context}", None)

    def has_work(self, person: str) -> bool:
        jobs = f"{API}/jobs?user_id={person}&limit=1&status="
        return any(self.get(jobs + status)["total"] for status in ("queued", "processing"))


class Hindsight(Running):
    def append(self, person: str, session: str, messages: list[Message]) -> Sent:
        text = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
        return "POST", f"{BANKS}/{person}/memories", {"async": True, "items": [{"content": text}]}

    def reads(self, person: str, session: str, query: str) -> Reads:
        recall = "POST", f"{BANKS}/{person}/memories/recall", {"query": query}
        return recall, recall

    def has_work(self, person: str) -> bool:
        operations = f"{BANKS}/{person}/operations?limit=1&status="
        return any(self.get(operations + status)["total"] for status in ("pending", "processing"))


class Honcho(Running):
    def append(self, person: str, session: str, messages: list[Message]) -> Sent:
        theirs = [{"peer_id": message["role"], "content": message["content"]} for message in messages]
        return "POST", f"{WORKSPACES}/{person}/sessions/{session}/messages", {"messages": theirs}

    def reads(self, person: str, session: str, query: str) -> Reads:
        context = f"sessions/{session}/context?{urlencode({'peer_target': 'user', 'search_query': query})}"
        search = "POST", f"{WORKSPACES}/{person}/search", {"query": query}
        return search, ("GET", f"{WORKSPACES}/{person}/{context}", None)

    def has_work(self, person: str) -> bool:
        status = self.get(f"{WORKSPACES}/{person}/queue/status")
        return any([status["pending_work_units"], status["in_progress_work_units"]])


Server = Ours | Hindsight | Honcho


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--ours", nargs=2, metavar=("URL", "KEY"), action="append", default=[])
    parser.add_argument("--hindsight", metavar="URL", action="append", default=[])
    parser.add_argument("--honcho", metavar="URL", action="append", default=[])
    options = parser.parse_args(arguments)
    servers: list[Server] = [Ours(urlsplit(url).port or 80, key) for url, key in options.ours]
    servers += [Hindsight(urlsplit(url).port or 80) for url in options.hindsight]
    servers += [Honcho(urlsplit(url).port or 80) for url in options.honcho]
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
    """Store two messages after the other for some seconds. The first request creates the person, and isn't counted."""
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
                request = server.reads(person, session, question)[number]
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
