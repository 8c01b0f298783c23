"""The entry points for planted texts."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from drill.poison.attacks import VICTIM, Turn
from drill.poison.report import FOR_ALL
from drill.site import SiteNotReady

MCP_HEADERS = {"Accept": "application/json, text/event-stream"}
MAX_CALLS = 20  # of an entry point that accepts one turn per call
BATCH = 500  # messages per request
ITEM_CHARS = 4_000  # of a direct entry
TITLE_CHARS = 255  # of a task
SHARD = "advice"
REQUEST_TIMEOUT = 120  # maximum seconds of a request
UNAVAILABLE = 503


class Installation(Protocol):
    """The installation under attack."""

    def request(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Make one request with a service key of scope `admin`."""

    def manage(self, *arguments: str) -> str:
        """Run a command, and return its output."""

    def rest(self) -> None:
        """Wait until all due jobs are done."""

    def have_quiet(self) -> None:
        """Make all sessions look idle, and queue the jobs that become due."""

    def sent_upstream(self, text: str) -> str:
        """Return the last chat request to the model with this text, or a blank string."""


@dataclass(frozen=True)
class Conversation:
    """Turns to plant.

    Args:
        person: The person.
        session: The session.
        turns: The turns.
    """

    person: str
    session: str
    turns: Sequence[Turn]

    @property
    def items(self) -> list[str]:
        """The texts to store one by one, if there is no conversation."""
        told = [turn["content"] for turn in self.turns if turn["role"] in ("user", "tool")]
        return [text[:ITEM_CHARS] for text in told[:MAX_CALLS]]


Door = Callable[[Installation, Sequence[Conversation]], None]


def answered(
    site: Installation, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Make a request. Retry it if the server is busy."""
    deadline = time.monotonic() + REQUEST_TIMEOUT
    while True:
        answer = site.request(method, path, body, headers=headers)
        if answer[0] != UNAVAILABLE or time.monotonic() > deadline:
            return answer
        time.sleep(1)


def ask(site: Installation, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Make an API request, and return the response.

    Raises:
        SiteNotReady: It was rejected.
    """
    status, answer = answered(site, method, path, body, headers=headers or None)
    if status >= 300:
        raise SiteNotReady(f"{method} {path} returned {status}: {answer.decode(errors='replace')[:300]}")
    return json.loads(answer) if answer else None


def call(site: Installation, method: str, parameters: Any, **headers: str) -> Any:
    """Make a call over MCP. Return its result, or None if it was rejected."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    named = MCP_HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer = answered(site, "POST", "/mcp", body, headers=named)
    if status != 200:
        raise SiteNotReady(f"MCP's {method} returned {status}.")
    text = answer.decode()
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return json.loads(events[-1] if events else text).get("result")


def over_rest(site: Installation, said: Sequence[Conversation]) -> None:
    """Append it to a session, as an application does."""
    for one in said:
        for start in range(0, len(one.turns), BATCH):
            body = {"user_id": one.person, "messages": list(one.turns[start : start + BATCH])}
            ask(site, "POST", f"/api/v1/sessions/{one.session}/messages", body)


def over_mcp(site: Installation, said: Sequence[Conversation]) -> None:
    """Store it as an assistant does, with the memory tools."""
    for one in said:
        for text in one.items:
            asked = {"name": "append_memory", "arguments": {"content": text}}
            call(site, "tools/call", asked, X_User_Id=one.person)


def over_chat(site: Installation, said: Sequence[Conversation]) -> None:
    """Send it to a model through the chat endpoint."""
    for one in said:
        for messages in list(_rounds(one.turns))[:MAX_CALLS]:
            body = {"model": "drill", "messages": messages}
            ask(site, "POST", "/v1/chat/completions", body, **{"X-User-Id": one.person, "X-Session-Id": one.session})


def by_import(site: Installation, said: Sequence[Conversation]) -> None:
    """Import it from one file, as from another system."""
    lines = [{"user_id": one.person, "session_id": one.session, **turn} for one in said for turn in one.turns]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "said.jsonl"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        site.manage("import_sessions", str(file), "--format", "jsonl", "--verbosity", "0")


def as_tasks(site: Installation, said: Sequence[Conversation]) -> None:
    """Store it as tasks of the person."""
    for one in said:
        for text in one.items:
            body = {"user_id": one.person, "kind": "task", "title": text[:TITLE_CHARS], "body": text}
            ask(site, "POST", "/api/v1/entities", body)


def into_a_shard(site: Installation, said: Sequence[Conversation]) -> None:
    """Write it to shared memory with an administrator's key."""
    shard = shard_of(site)
    for one in said:
        for text in one.items:
            body = {"user_id": one.person, "atom_type": "observation", "content": text}
            ask(site, "POST", f"/api/v1/streams/{shard}/atoms", body)


def shard_of(site: Installation) -> str:
    """Return the id of the only shard."""
    query = urlencode({"user_id": VICTIM, "stream_type": "agent", "limit": 200})
    found = ask(site, "GET", f"/api/v1/streams?{query}")["streams"]
    return next(str(stream["stream_id"]) for stream in found if stream["name"] == SHARD)


def _rounds(turns: Sequence[Turn]) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of each call, without the assistant's, because the model answers."""
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        if turn["role"] == "assistant" and "payload" not in turn:
            continue
        messages.append(_message(turn))
        following = turns[number + 1] if number + 1 < len(turns) else {}
        if turn["role"] != "assistant" and "payload" not in following:
            yield messages
            messages = []


def _message(turn: Turn) -> dict[str, Any]:
    payload: dict[str, Any] = turn.get("payload", {})
    return {"role": turn["role"], "content": turn["content"] or None, **payload}


CONVERSATIONS: Mapping[str, Door] = {"rest": over_rest, "chat": over_chat, "import": by_import}
DOORS: Mapping[str, Door] = {**CONVERSATIONS, "mcp": over_mcp, "tasks": as_tasks, FOR_ALL: into_a_shard}
