"""Chat messages in the format of OpenAI's API, as fields of our own messages."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sessions_app.content_parts import Fields, filled, text_and_parts, without_data

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


def turn_fields(raw: Any, tools: dict[str, str]) -> Fields:
    """Return the fields of a chat message in the format of our API.

    Args:
        raw: The message.
        tools: Tool names by call id. The calls of this message are added.

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
