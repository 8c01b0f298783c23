"""The ways in, by which what is planted gets into a person's memory."""

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
from drill.site import NotWell

MCP_HEADERS = {"Accept": "application/json, text/event-stream"}
MOST_CALLS = 20  # of a door that takes one turn at a time
BATCH = 500  # messages in a request
ITEM_CHARS = 4_000  # of what is remembered at once
TITLE_CHARS = 255  # of a task
SHARD = "advice"
PATIENCE = 120  # seconds for a request
PUT_OFF = 503


class Installation(Protocol):
    """What is told, asked and looked after."""

    def request(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Make one request with a service's key of scope `admin`."""

    def manage(self, *arguments: str) -> str:
        """Run a command, and return what it prints."""

    def rest(self) -> None:
        """Return when all work that is due has been done."""

    def have_quiet(self) -> None:
        """Have all sessions be quiet for long, and what comes due by that be asked for."""

    def sent_upstream(self, text: str) -> str:
        """Return the last chat that the model was sent with this text in it; blank if there was none."""


@dataclass(frozen=True)
class Said:
    """What comes by a door.

    Args:
        person: who says it.
        session: in which.
        turns: that are said.
    """

    person: str
    session: str
    turns: Sequence[Turn]

    @property
    def items(self) -> list[str]:
        """The texts that are remembered one by one, where there is no conversation."""
        told = [turn["content"] for turn in self.turns if turn["role"] in ("user", "tool")]
        return [text[:ITEM_CHARS] for text in told[:MOST_CALLS]]


Door = Callable[[Installation, Sequence[Said]], None]


def answered(
    site: Installation, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Make a request; again where it was put off, for the machine may have much to do."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = site.request(method, path, body, headers=headers)
        if answer[0] != PUT_OFF or time.monotonic() > deadline:
            return answer
        time.sleep(1)


def ask(site: Installation, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Make a request of the API, and return what is answered.

    Raises:
        NotWell: it is refused.
    """
    status, answer = answered(site, method, path, body, headers=headers or None)
    if status >= 300:
        raise NotWell(f"{method} {path} is answered {status}: {answer.decode(errors='replace')[:300]}")
    return json.loads(answer) if answer else None


def call(site: Installation, method: str, parameters: Any, **headers: str) -> Any:
    """Make a call over MCP, and return its result; None where it is refused."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    named = MCP_HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer = answered(site, "POST", "/mcp", body, headers=named)
    if status != 200:
        raise NotWell(f"MCP's {method} is answered {status}.")
    text = answer.decode()
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return json.loads(events[-1] if events else text).get("result")


def over_rest(site: Installation, said: Sequence[Said]) -> None:
    """Append it, as an application does."""
    for one in said:
        for start in range(0, len(one.turns), BATCH):
            body = {"user_id": one.person, "messages": list(one.turns[start : start + BATCH])}
            ask(site, "POST", f"/api/v1/sessions/{one.session}/messages", body)


def over_mcp(site: Installation, said: Sequence[Said]) -> None:
    """Have an assistant remember it."""
    for one in said:
        for text in one.items:
            asked = {"name": "append_memory", "arguments": {"content": text}}
            call(site, "tools/call", asked, X_User_Id=one.person)


def over_chat(site: Installation, said: Sequence[Said]) -> None:
    """Say it to a model, through the chat endpoint."""
    for one in said:
        for messages in list(_rounds(one.turns))[:MOST_CALLS]:
            body = {"model": "drill", "messages": messages}
            ask(site, "POST", "/v1/chat/completions", body, **{"X-User-Id": one.person, "X-Session-Id": one.session})


def by_import(site: Installation, said: Sequence[Said]) -> None:
    """Import it, as it comes from another system: all of it in one file."""
    lines = [{"user_id": one.person, "session_id": one.session, **turn} for one in said for turn in one.turns]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "said.jsonl"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        site.manage("import_sessions", str(file), "--format", "jsonl", "--verbosity", "0")


def as_tasks(site: Installation, said: Sequence[Said]) -> None:
    """Note it as tasks of the person."""
    for one in said:
        for text in one.items:
            body = {"user_id": one.person, "kind": "task", "title": text[:TITLE_CHARS], "body": text}
            ask(site, "POST", "/api/v1/entities", body)


def into_a_shard(site: Installation, said: Sequence[Said]) -> None:
    """Write it where everybody sees it, as an administrator's key may."""
    shard = shard_of(site)
    for one in said:
        for text in one.items:
            body = {"user_id": one.person, "atom_type": "observation", "content": text}
            ask(site, "POST", f"/api/v1/streams/{shard}/atoms", body)


def shard_of(site: Installation) -> str:
    """Return the id of the shard that there is."""
    query = urlencode({"user_id": VICTIM, "stream_type": "agent", "limit": 200})
    found = ask(site, "GET", f"/api/v1/streams?{query}")["streams"]
    return next(str(stream["stream_id"]) for stream in found if stream["name"] == SHARD)


def _rounds(turns: Sequence[Turn]) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of each call; what the assistant answers is the model's to say."""
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
