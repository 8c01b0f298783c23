"""Convert chat messages in the format of OpenAI's API to fields of our messages.

The content of a message may be a list of parts: text, and pictures, sound or files.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sessions_app.text.length import shorten_middle

DATA_MAX_CHARS = 200  # number of characters to store of an embedded picture or file
MAX_DEPTH = 100  # nesting depth up to which embedded data are searched; deeper values can't be stored
ROLES = {"developer": "system", "function": "tool"}

Fields = dict[str, Any]  # the fields of a message in our API


class OpenAIMessage(BaseModel):
    """A message. Fields that are not declared here are stored as metadata."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[str | dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None


def turn_fields(raw: Any, tools: dict[str, str]) -> Fields:
    """Convert a chat message to the fields of a message in our API. Raise pydantic.ValidationError if it is not valid.

    `tools` maps the ids of tool calls to names of tools. This function reads it, and adds the calls of the message to
    it.
    """
    message = OpenAIMessage.model_validate(raw)
    tools.update(_called_tools(message))
    return _fields(message, tools)


def _called_tools(message: OpenAIMessage) -> dict[str, str]:
    names: dict[str, str] = {}
    for call in message.tool_calls or ():
        function = call.get("function")
        if isinstance(function, dict) and isinstance(call.get("id"), str) and isinstance(function.get("name"), str):
            names[call["id"]] = function["name"]
    return names


def _fields(message: OpenAIMessage, tools: dict[str, str]) -> Fields:
    text, parts = text_and_parts(message.content)
    calls = message.tool_calls
    if message.function_call:  # the predecessor of `tool_calls`
        calls = [{"type": "function", "function": message.function_call}]
    payload = {"tool_calls": calls, "tool_call_id": message.tool_call_id, "parts": parts}
    role = ROLES.get(message.role, message.role)
    is_result = role == "tool"
    return {
        "role": role,
        "content": text or _refusal(message),
        "tool_name": (message.name or tools.get(message.tool_call_id or "", "")) if is_result else "",
        "name": "" if is_result else message.name or "",
        "payload": without_empty(payload) or None,
        "metadata": without_empty(without_data(message.model_extra)),
    }


def _refusal(message: OpenAIMessage) -> str:
    """Return the text that a model sends instead of content if it refuses to answer."""
    refusal = (message.model_extra or {}).get("refusal")
    return refusal if isinstance(refusal, str) else ""


def text_and_parts(content: str | Sequence[Any] | None) -> tuple[str, list[Any]]:
    """Return the text of a message's content, and its other parts: pictures, sound, files."""
    if content is None or isinstance(content, str):
        return content or "", []
    texts: list[str] = []
    others: list[Any] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        else:
            others.append(without_data(part))
    return "\n".join(filter(None, texts)), others


def without_data(value: Any, *, is_data: bool = False, depth: int = 0) -> Any:
    """Return a copy in which the data of pictures and files are shortened, with a notice."""
    if depth == MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {
            key: without_data(part, is_data=key in ("data", "file_data"), depth=depth + 1)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [without_data(part, depth=depth + 1) for part in value]
    if isinstance(value, str) and (is_data or value.startswith("data:")):
        return shorten_middle(value, DATA_MAX_CHARS)
    return value


def without_empty(fields: Mapping[str, Any]) -> Fields:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
