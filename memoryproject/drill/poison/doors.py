"""The ways in, by which what is planted gets into a person's memory."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from memoryproject.drill.poison.attacks import Turn
from memoryproject.drill.site import NotWell

MCP_HEADERS = {"Accept": "application/json, text/event-stream"}
MOST_CALLS = 20  # of a door that takes one turn at a time
BATCH = 500  # messages in a request
ITEM_CHARS = 4_000  # of what is remembered over MCP at once


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


Door = Callable[[Installation, str, str, Sequence[Turn]], None]  # the person, the session, and what is said


def ask(site: Installation, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Make a request of the API, and return what is answered.

    Raises:
        NotWell: it is refused.
    """
    status, answer = site.request(method, path, body, headers=headers or None)
    if status >= 300:
        raise NotWell(f"{method} {path} is answered {status}: {answer.decode(errors='replace')[:300]}")
    return json.loads(answer) if answer else None


def call(site: Installation, method: str, parameters: Any, **headers: str) -> Any:
    """Make a call over MCP, and return its result; None where it is refused."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    named = MCP_HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer = site.request("POST", "/mcp", body, headers=named)
    if status != 200:
        raise NotWell(f"MCP's {method} is answered {status}.")
    text = answer.decode()
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return json.loads(events[-1] if events else text).get("result")


def over_rest(site: Installation, person: str, session: str, turns: Sequence[Turn]) -> None:
    """Append it, as an application does."""
    for start in range(0, len(turns), BATCH):
        body = {"user_id": person, "messages": list(turns[start : start + BATCH])}
        ask(site, "POST", f"/api/v1/sessions/{session}/messages", body)


def over_mcp(site: Installation, person: str, session: str, turns: Sequence[Turn]) -> None:
    """Have an assistant remember it."""
    said = [turn["content"] for turn in turns if turn["role"] in ("user", "tool")]
    for text in said[:MOST_CALLS]:
        asked = {"name": "append_memory", "arguments": {"content": text[:ITEM_CHARS]}}
        call(site, "tools/call", asked, X_User_Id=person)


def over_chat(site: Installation, person: str, session: str, turns: Sequence[Turn]) -> None:
    """Say it to a model, through the chat endpoint."""
    for messages in list(_rounds(turns))[:MOST_CALLS]:
        body = {"model": "drill", "messages": messages}
        ask(site, "POST", "/v1/chat/completions", body, **{"X-User-Id": person, "X-Session-Id": session})


def by_import(site: Installation, person: str, session: str, turns: Sequence[Turn]) -> None:
    """Import it, as it comes from another system."""
    lines = [{"user_id": person, "session_id": session, **turn} for turn in turns]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "said.jsonl"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        site.manage("import_sessions", str(file), "--format", "jsonl", "--verbosity", "0")


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


DOORS: Mapping[str, Door] = {"rest": over_rest, "mcp": over_mcp, "chat": over_chat, "import": by_import}
