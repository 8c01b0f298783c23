"""A session of the OpenAI Agents SDK that the platform stores: `Runner.run(agent, "…", session=MemorySession(…))`.

Items become turns: a tool call becomes an assistant's turn with `tool_calls`, its result a `tool` turn, and any other
item the payload of a turn. The payload also contains the pictures and files of messages and results. The returned items
start with what memory knows about the person, and with the session's boundary, if there is one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memory_platform.client import AsyncMemory, answers
from memory_platform.client.errors import Refused
from memory_platform.client.messages import STANDING, memory_in, parts_in

Item = dict[str, Any]


class MemorySession:
    """See the module's docstring. `pop_item` and `clear_session` require a key with the scope `admin`.

    Args:
        memory: A person's memory with a conversation.
    """

    session_settings: Any = None

    def __init__(self, memory: AsyncMemory) -> None:
        self.memory, self.session_id = memory, memory.session_id

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Return what memory knows about the person, and the newest turns after the boundary, at most `limit`."""
        known = memory_in(await self.memory.context(layers=STANDING))
        return [*([{"role": "system", "content": known}] if known else []), *await self._said(limit)]

    async def _said(self, limit: int | None = None) -> list[Item]:
        try:
            live = await self.memory.messages(limit=limit)
        except Refused as refused:
            if refused.status == 404:  # the session doesn't exist yet
                return []
            raise
        return [item for message in live["messages"] for item in _items(message)]

    async def add_items(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Append items."""
        if items:
            await self.memory.add([_message(item) for item in items])

    async def pop_item(self) -> Item | None:
        """Retract the newest turn, with the memory derived from it, and return it."""
        client, about = self.memory.client, {"user_id": self.memory.user_id}
        live = await self._said(1)
        if not live:
            return None
        newest = (await self.memory.messages(limit=1))["messages"][-1]
        if newest["kind"] != "turn":
            return None
        body = about | {"session_id": self.session_id, "sequences": [newest["sequence"]], "reason": "pop_item"}
        await client.call("POST", "retractions", json=body)
        return live[-1]

    async def clear_session(self) -> None:
        """Delete the transcript. Memory derived from it stays."""
        try:
            await self.memory.delete_session(self.session_id)
        except Refused as refused:
            if refused.status != 404:
                raise


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an item to a turn."""
    kind = item.get("type", "message")
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "content": "", "payload": {"tool_calls": [call]}}
    if kind == "function_call_output":
        payload = {"tool_call_id": item["call_id"]} | _parts(item["output"])
        return {"role": "tool", "content": _text(item["output"]), "payload": payload}
    role = {"developer": "system"}.get(item.get("role", ""), item.get("role", ""))
    if kind == "message" and role in ("user", "assistant", "system"):
        content = item.get("content", "")
        return {"role": role, "content": _text(content), "payload": _parts(content) or None}
    return {"role": "assistant", "content": "", "payload": {"item": dict(item)}}


def _text(content: Any) -> str:
    """Return the text of a content, joined from its parts if it has any."""
    if isinstance(content, str):
        return content
    texts = [part.get("text") or part.get("refusal") for part in content if isinstance(part, Mapping)]
    return "\n".join(filter(None, texts))


def _parts(content: Any) -> dict[str, Any]:
    parts = parts_in(content)
    return {"parts": parts} if parts else {}


def _items(message: answers.Message) -> list[Item]:
    """Convert a turn to items."""
    payload = message["payload"] if isinstance(message["payload"], dict) else {}
    if message["kind"] == "partition":
        return [{"role": "system", "content": message["content"]}]
    if "item" in payload:
        return [payload["item"]]
    if message["role"] == "tool":
        called = payload.get("tool_call_id", "")
        return [{"type": "function_call_output", "call_id": called, "output": _content(message["content"], payload)}]
    content = _content(message["content"], payload)
    said = [{"role": message["role"], "content": content}] if content else []
    return [*said, *map(_call, payload.get("tool_calls", []))]


def _content(text: str, payload: Mapping[str, Any]) -> Any:
    """Return the text of a turn, or a list with the text and its pictures and files."""
    parts = payload.get("parts", [])
    said = [{"type": "input_text", "text": text}] if text else []
    return [*said, *parts] if parts else text


def _call(call: Mapping[str, Any]) -> Item:
    function = call["function"]
    return {
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }
