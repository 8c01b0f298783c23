"""A chat history of LangChain's that is kept by the platform: `MemoryChatHistory(memory)`.

What is read back begins with the session's boundary, if there is one: a system message that says what lies before it.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from memory_platform.client import Memory, answers
from memory_platform.client.errors import Refused

ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


class MemoryChatHistory(BaseChatMessageHistory):
    """See the module's text; `clear` needs a key with the `admin` scope.

    Args:
        memory: of a person, in a conversation.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """What is to be replayed: the newest turns, behind the boundary."""
        try:
            return [_read(message) for message in self._memory.messages()["messages"]]
        except Refused as refused:
            if refused.status == 404:  # nothing was said yet
                return []
            raise

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append what was said."""
        if messages:
            self._memory.add([_written(message) for message in messages])

    def clear(self) -> None:
        """Delete the transcript; what is remembered of it stays."""
        try:
            self._memory.delete_session(self._memory.session_id)
        except Refused as refused:
            if refused.status != 404:
                raise


def _written(message: BaseMessage) -> dict[str, Any]:
    """Return a message as a turn."""
    turn: dict[str, Any] = {"role": ROLES.get(message.type, "user"), "content": str(message.text)}
    if isinstance(message, AIMessage) and message.tool_calls:
        turn["payload"] = {"tool_calls": [dict(call) for call in message.tool_calls]}
    if isinstance(message, ToolMessage):
        turn["payload"] = {"tool_call_id": message.tool_call_id}
    return turn


def _read(message: answers.Message) -> BaseMessage:
    """Return a turn as a message; the boundary is the system's."""
    content, role = message["content"], message["role"]
    payload = message["payload"] if isinstance(message["payload"], dict) else {}
    if message["kind"] == "partition" or role == "system":
        return SystemMessage(content)
    if role == "user":
        return HumanMessage(content)
    if role == "tool":
        return ToolMessage(content, tool_call_id=payload.get("tool_call_id", ""))
    calls = [{"name": call["name"], "args": call["args"], "id": call["id"]} for call in payload.get("tool_calls", [])]
    return AIMessage(content, tool_calls=calls)
