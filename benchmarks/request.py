"""CPU time and duration of requests about real conversations: `python -m benchmarks.request`.

A site with default settings stores conversations. Each kind of request is sent in three states: just after the
conversation, settled after an hour, and archived after a month. No text and no question is sent twice. `--clients`
measures durations under load instead. Linux only, because it reads /proc.

CPU time is in milliseconds, divided by the seconds that ten million loops of `x += i` take just before and after, so
figures of different machines are comparable. It includes the jobs that a request queues.
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, zip_longest
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

from benchmarks.clients import Http, timed
from benchmarks.conversations import Conversation, read_folder
from benchmarks.figures import print_markdown
from benchmarks.lean import processes_of, running_site
from benchmarks.site import SETTINGS
from benchmarks.steady import CONVERSATIONS
from benchmarks.stored import let_a_minute_pass, let_a_month_pass, let_an_hour_pass, store, wait_for_jobs

API = "/api/v1"
CALLS = 150  # requests of each kind, except those with a question, which have fewer
CONTEXT, SEARCH = "context with a question", "search"
REST = 2.0  # seconds until other threads have written what a request leaves to them
STATES: dict[str, Callable[[Callable[[], None]], None]] = {
    "just said": let_a_minute_pass,
    "settled": let_an_hour_pass,
    "archived": let_a_month_pass,
}
# A column of the table by the purpose of a process.
PARTS = {
    "web process": "web",
    "PostgreSQL, a web process's connection": "PostgreSQL",
    "embeddings server": "embeddings",
    "worker": "jobs",
    "PostgreSQL, a worker's connection": "jobs",
}
TITLE = "Requests about real conversations"
NOTE = (
    "CPU milliseconds per request and unit: of web processes, of their connections to PostgreSQL, of the embeddings "
    "server, and of the jobs that the request queues. The durations are of one client on a site without other load."
)
LOAD_COLUMNS = ["what", "requests/s", "p50 ms", "p99 ms"]
LOAD_NOTE = "{clients} clients send requests of all kinds in turn. The conversations are settled."
COLUMNS = ["state", "what", *dict.fromkeys(PARTS.values()), "p50 ms", "p95 ms"]

Item = tuple["Person", str, str]  # a person, a question or message, and a reply
Sent = tuple[str, str, dict[str, Any] | None]  # method, path and body of a request


@dataclass(frozen=True)
class Person:
    """A person with a stored conversation, who is in its last session."""

    conversation: Conversation

    @property
    def session(self) -> str:
        return f"session-{self.conversation.sessions[-1].n}"

    @property
    def body(self) -> dict[str, Any]:
        return {"user_id": self.conversation.id}


def _get(path: str, person: Person, **parameters: str) -> Sent:
    return "GET", f"{API}/{path}?{urlencode(person.body | parameters)}", None


def _context(person: Person, **parameters: str) -> Sent:
    return _get("memory/context", person, session_id=person.session, **parameters)


def _append(person: Person, said: str, reply: str) -> Sent:
    messages = [{"role": "user", "content": said}, {"role": "assistant", "content": reply}]
    return "POST", f"{API}/sessions/appended/messages", person.body | {"messages": messages}


KINDS: dict[str, Callable[[Person, str, str], Sent]] = {
    "a session": lambda person, _said, _reply: _get(f"sessions/{person.session}", person),
    "live turns": lambda person, _said, _reply: _get(f"sessions/{person.session}/messages", person, view="live"),
    "context without a search": lambda person, _said, _reply: _context(person),
    CONTEXT: lambda person, said, _reply: _context(person, query=said[:1000]),
    SEARCH: lambda person, said, _reply: ("POST", f"{API}/memory/search", person.body | {"query": said[:1000]}),
    "append of two messages": _append,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=CONVERSATIONS, help="folder of conversations")
    parser.add_argument("--clients", type=int, help="send requests with this many concurrent clients instead")
    parser.add_argument("--minutes", type=float, default=10, help="duration with --clients (10)")
    options = parser.parse_args(arguments)
    conversations = read_folder(options.folder)
    people = [Person(conversation) for conversation in conversations]
    with running_site() as (folder, pid, port, key):
        os.environ.update(SETTINGS, DATA_DIR=str(folder))
        import django

        django.setup()
        with closing(Http(port, key)) as http:
            for conversation in conversations:
                store(http, conversation)
        if options.clients:
            let_an_hour_pass(wait_for_jobs)
            rows = _under_load(port, key, people, options.clients, options.minutes * 60)
            print_markdown(TITLE, LOAD_COLUMNS, rows, LOAD_NOTE.format(clients=options.clients))
        else:
            site = RunningSite(port, key, pid, folder)
            print_markdown(TITLE, COLUMNS, _rows(site, people), NOTE)
    return 0


def _said(people: list[Person]) -> list[Item]:
    """Return pairs of turns of all conversations, in turn."""
    pairs = []
    for person in people:
        turns = [turn.text for _session, turn in person.conversation.turns]
        pairs.append([(person, *pair) for pair in zip(turns[::2], turns[1::2], strict=False)])
    return [pair for together in zip_longest(*pairs) for pair in together if pair]


# --- one client ---


@dataclass(frozen=True)
class RunningSite:
    """A site, with the id of its first process and its DATA_DIR."""

    port: int
    key: str
    pid: int
    folder: Path

    def measured(self, requests: Sequence[Sent]) -> list[str]:
        """Return the figures of some requests: CPU time by part, and their p50 and p95."""
        with closing(Http(self.port, self.key)) as http:
            http.request(*requests[0])  # fills the caches of processes
            _rest()
            before, first = self._cpu(), seconds_of_loop()
            times = [timed(partial(http.request, *request)) for request in requests[1:]]
            _rest()
        used: dict[str, float] = defaultdict(float)
        for process, (part, seconds) in self._cpu().items():
            used[part] += seconds - before.get(process, (part, 0.0))[1]
        unit = (first + seconds_of_loop()) / 2
        figures = [f"{used[part] * 1000 / len(times) / unit:.1f}" for part in dict.fromkeys(PARTS.values())]
        return [*figures, f"{median(times) * 1000:.1f}", f"{quantiles(times, n=20)[-1] * 1000:.1f}"]

    def _cpu(self) -> dict[int, tuple[str, float]]:
        """Return the part and the CPU seconds so far of each process."""
        found = processes_of(self.pid, self.folder)
        return {process.pid: (PARTS.get(process.purpose, ""), process.cpu) for process in found}


def _rows(site: RunningSite, people: list[Person]) -> Iterator[list[str]]:
    asked = [(person, question.q, "") for person in people for question in person.conversation.questions]
    said = _said(people)
    for number, (state, let_time_pass) in enumerate(STATES.items()):
        let_time_pass(wait_for_jobs)
        for what, request in KINDS.items():
            items = said[number :: len(STATES)][:CALLS]
            if what in (CONTEXT, SEARCH):
                items = asked[2 * number + (what == SEARCH) :: 2 * len(STATES)]
            yield [state, what, *site.measured([request(*item) for item in items])]


def _rest() -> None:
    time.sleep(REST)
    wait_for_jobs()


# --- many clients ---


def _under_load(port: int, key: str, people: list[Person], clients: int, seconds: float) -> Iterator[list[str]]:
    """Yield the figures of each kind of request, while each client sends one after the other."""
    items, deadline = _said(people), time.monotonic() + seconds
    with ThreadPoolExecutor(clients) as pool:
        sent = [
            pool.submit(_send, port, key, islice(cycle(items), client, None, clients), deadline)
            for client in range(clients)
        ]
    for what in KINDS:
        times = [taken for future in sent for taken in future.result()[what]]
        p99 = quantiles(times, n=100)[-1]
        yield [what, f"{len(times) / seconds:.1f}", f"{median(times) * 1000:.1f}", f"{p99 * 1000:.1f}"]


def _send(port: int, key: str, items: Iterable[Item], deadline: float) -> dict[str, list[float]]:
    """Send requests of all kinds until the deadline. Return the duration of each."""
    times: dict[str, list[float]] = {what: [] for what in KINDS}
    with closing(Http(port, key)) as http:
        for item in items:
            for what, request in KINDS.items():
                times[what].append(timed(partial(http.request, *request(*item))))
            if time.monotonic() > deadline:
                break
    return times


def seconds_of_loop() -> float:
    """Return the CPU seconds that ten million iterations of a loop take now."""
    began, x = time.process_time(), 0
    for i in range(1_000_000):
        x += i
    return (time.process_time() - began) * 10


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
