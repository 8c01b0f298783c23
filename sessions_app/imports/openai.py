"""Reader of chat messages in the format of OpenAI's API and fine-tuning: one `{"messages": […]}` per line.

A conversation is identified by its `id` or, if it has none, by a hash of its messages; a message by its position and a
hash of its content. So importing the same file or a longer one adds nothing twice, and a conversation with an id may
grow.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sessions_app.content_parts import text_and_parts, without_data
from sessions_app.imports.import_sessions import Record, Rejected
from sessions_app.imports.records import (
    Fields,
    Owner,
    SourceConversation,
    conversation_records,
    filled,
    point_in_time,
)
from sessions_app.imports.source import Source

NAME = "openai"
LOOKED_FOR = "JSON lines with messages (openai)"
ID_NAMES = ("id", "conversation_id", "session_id")
ROLES = {"developer": "system", "function": "tool"}


class OpenAIMessage(BaseModel):
    """One message. Fields that aren't named here are kept as its metadata."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[str | dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None


class OpenAIConversation(BaseModel):
    """A line of the file: one conversation."""

    model_config = ConfigDict(extra="allow")

    messages: list[Any]
    metadata: Any = None
    title: Any = None
    created: float | None = None  # seconds since 1970, in a stored completion


def recognizes(source: Source) -> bool:
    """Return True if the first line is a conversation."""
    return "messages" in source.first_names


def read(source: Source, owner: Owner) -> Iterator[Record | Rejected]:
    """Yield the messages of all conversations."""
    return conversation_records(NAME, source.lines(), owner, _parse_conversation)


def _parse_conversation(value: Any) -> SourceConversation:
    line = OpenAIConversation.model_validate(value)
    created_at = point_in_time(line.created)
    tools: dict[str, str] = {}  # tool names by call id, because results don't repeat them

    def fields_of(numbered: tuple[int, Any]) -> list[Fields]:
        number, raw = numbered
        return [turn_fields(raw, tools) | {"external_id": f"{number}:{_digest(raw)[:16]}", "created_at": created_at}]

    return SourceConversation(_session_id(line), line.title, list(enumerate(line.messages)), fields_of)


def _session_id(line: OpenAIConversation) -> str:
    metadata = line.metadata if isinstance(line.metadata, dict) else {}
    for place in (line.model_extra or {}, metadata):
        for name in ID_NAMES:
            if isinstance(place.get(name), str | int) and place[name]:
                return str(place[name])
    return _digest(line.messages)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def turn_fields(raw: Any, tools: dict[str, str]) -> Fields:
    """Return the fields of a chat message as our API takes them.

    Args:
        raw: The message.
        tools: Tool names by call id so far; those of this message are added.

    Raises:
        ValidationError: It is not a chat message (pydantic's error).
    """
    message = OpenAIMessage.model_validate(raw)
    tools.update(_called_tools(message))
    return _fields(message, tools)


def _called_tools(message: OpenAIMessage) -> dict[str, str]:
    """Return the names of the tools that a message calls, by call id."""
    names: dict[str, str] = {}
    for call in message.tool_calls or ():
        function = call.get("function")
        if isinstance(function, dict) and isinstance(call.get("id"), str) and isinstance(function.get("name"), str):
            names[call["id"]] = function["name"]
    return names


def _fields(message: OpenAIMessage, tools: dict[str, str]) -> Fields:
    text, parts = text_and_parts(message.content)
    calls = message.tool_calls
    if message.function_call:  # the predecessor of tool calls
        calls = [{"type": "function", "function": message.function_call}]
    payload = {"tool_calls": calls, "tool_call_id": message.tool_call_id, "parts": parts}
    role = ROLES.get(message.role, message.role)
    is_result = role == "tool"
    return {
        "role": role,
        "content": text,
        "tool_name": (message.name or tools.get(message.tool_call_id or "", "")) if is_result else "",
        "name": "" if is_result else message.name or "",
        "payload": filled(payload) or None,
        "metadata": filled(without_data(message.model_extra)),
    }
