"""CPU time and duration of requests about real conversations: `python -m benchmarks.request`.

A site with default settings stores conversations. Each kind of request is sent in three states: just after the
conversation, settled after an hour, and archived after a month. No text and no question is sent twice. Linux only,
because it reads /proc.

CPU time is in milliseconds, divided by the seconds that ten million loops of `x += i` take just before and after, so
figures of different machines are comparable. It includes the jobs that a request queues.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, islice
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
READS = 200  # requests of the kinds without a text
APPENDS = 40
REST = 2.0  # seconds until what a request leaves to other threads is written
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
COLUMNS = ["state", "what", *dict.fromkeys(PARTS.values()), "p50 ms", "p95 ms"]

Call = Callable[[], object]


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


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=CONVERSATIONS, help="folder of conversations")
    options = parser.parse_args(arguments)
    conversations = read_folder(options.folder)
    with running_site() as (folder, pid, port, key):
        os.environ.update(SETTINGS, DATA_DIR=str(folder))
        import django

        django.setup()
        with closing(Http(port, key)) as http:
            for conversation in conversations:
                store(http, conversation)
            print_markdown(TITLE, COLUMNS, _rows(http, conversations, pid, folder), NOTE)
    return 0


def _rows(http: Http, conversations: list[Conversation], pid: int, folder: Path) -> Iterator[list[str]]:
    people = [Person(conversation) for conversation in conversations]
    asked = [(person, question.q) for person in people for question in person.conversation.questions]
    said = [(person, turn.text) for person in people for _session, turn in person.conversation.turns]
    questions = _parts(asked, 2 * len(STATES))
    texts = _parts(said[: 2 * APPENDS * len(STATES)], len(STATES))
    for state, let_time_pass in STATES.items():
        let_time_pass(wait_for_jobs)
        calls = _calls(http, people, next(questions), next(questions), next(texts))
        for what, of_kind in calls.items():
            yield [state, what, *_measured(list(of_kind), pid, folder)]


def _parts(items: list[tuple[Person, str]], number: int) -> Iterator[list[tuple[Person, str]]]:
    return (items[part::number] for part in range(number))


def _calls(
    http: Http,
    people: list[Person],
    for_contexts: Iterable[tuple[Person, str]],
    for_searches: Iterable[tuple[Person, str]],
    texts: list[tuple[Person, str]],
) -> dict[str, Iterator[Call]]:
    """Return the calls of each kind."""

    def get(path: str, **parameters: str) -> Call:
        return lambda: http.request("GET", f"{API}/{path}?{urlencode(parameters)}")

    def post(path: str, body: dict[str, Any]) -> Call:
        return lambda: http.request("POST", f"{API}/{path}", body)

    def context(person: Person, **parameters: str) -> Call:
        return get("memory/context", **person.body, session_id=person.session, **parameters)

    anyone = list(islice(cycle(people), READS))
    pairs = (
        (person, [{"role": "user", "content": first}, {"role": "assistant", "content": second}])
        for (person, first), (_person, second) in zip(texts[::2], texts[1::2], strict=True)
    )
    return {
        "a session": (get(f"sessions/{person.session}", **person.body) for person in anyone),
        "live turns": (get(f"sessions/{person.session}/messages", view="live", **person.body) for person in anyone),
        "context without a search": (context(person) for person in anyone),
        "context with a question": (context(person, query=question) for person, question in for_contexts),
        "search": (post("memory/search", person.body | {"query": question}) for person, question in for_searches),
        "append of two messages": (
            post("sessions/appended/messages", person.body | {"messages": messages}) for person, messages in pairs
        ),
    }


def _measured(calls: list[Call], pid: int, folder: Path) -> list[str]:
    """Return the figures of some calls: CPU time by part, and their p50 and p95."""
    calls.pop()()  # fills the caches of processes
    _rest()
    before, first = {process.pid: process.cpu for process in processes_of(pid, folder)}, _unit()
    times = sorted(timed(call) for call in calls)
    _rest()
    used = Counter[str]()
    for process in processes_of(pid, folder):
        used[PARTS.get(process.purpose, "")] += process.cpu - before.get(process.pid, 0.0)
    unit = (first + _unit()) / 2
    figures = [f"{used[part] * 1000 / len(calls) / unit:.1f}" for part in dict.fromkeys(PARTS.values())]
    return [*figures, f"{median(times) * 1000:.1f}", f"{quantiles(times, n=20)[-1] * 1000:.1f}"]


def _rest() -> None:
    time.sleep(REST)
    wait_for_jobs()


def _unit() -> float:
    """Return the CPU seconds that ten million iterations of a loop take now."""
    began, x = time.process_time(), 0
    for i in range(1_000_000):
        x += i
    return (time.process_time() - began) * 10


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
