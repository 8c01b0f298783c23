"""A chat history for LangChain that the platform stores: `MemoryChatHistory(memory)`.

The messages start with system messages: what memory knows about the person, and the session's boundary, which
summarizes earlier turns.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from memory_platform.client import Memory, answers
from memory_platform.client.errors import Refused
from memory_platform.client.messages import STANDING, memory_in, parts_in

ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


class MemoryChatHistory(BaseChatMessageHistory):
    """See the module's docstring. `clear` requires a key with the scope `admin`.

    Args:
        memory: A person's memory with a conversation.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: str | None = None

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """Memory about the person, and the newest turns after the boundary."""
        if self._known is None:  # LangChain counts the messages before and after an answer, so they must stay the same
            self._known = memory_in(self._memory.context(layers=STANDING))
        return [*([SystemMessage(self._known)] if self._known else []), *self._said()]

    def _said(self) -> list[BaseMessage]:
        try:
            return [_read(message) for message in self._memory.messages()["messages"]]
        except Refused as refused:
            if refused.status == 404:  # the session doesn't exist yet
                return []
            raise

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages."""
        if messages:
            self._memory.add([_written(message) for message in messages])
            self._known = None

    def clear(self) -> None:
        """Delete the transcript. Memory derived from it stays."""
        try:
            self._memory.delete_session(self._memory.session_id)
        except Refused as refused:
            if refused.status != 404:
                raise


def _written(message: BaseMessage) -> dict[str, Any]:
    """Convert a message to a turn."""
    turn: dict[str, Any] = {"role": ROLES.get(message.type, "user"), "content": str(message.text)}
    if isinstance(message, AIMessage) and message.tool_calls:
        turn["payload"] = {"tool_calls": [dict(call) for call in message.tool_calls]}
    if isinstance(message, ToolMessage):
        turn["payload"] = {"tool_call_id": message.tool_call_id}
    if isinstance(message, HumanMessage) and (parts := parts_in(message.content)):
        turn["payload"] = {"parts": parts}
    return turn


def _read(message: answers.Message) -> BaseMessage:
    """Convert a turn to a message. The boundary becomes a system message."""
    content, role = message["content"], message["role"]
    payload = message["payload"] if isinstance(message["payload"], dict) else {}
    if message["kind"] == "partition" or role == "system":
        return SystemMessage(content)
    if role == "user":
        parts = payload.get("parts", [])
        text = [{"type": "text", "text": content}] if content else []
        return HumanMessage([*text, *parts] if parts else content)
    if role == "tool":
        return ToolMessage(content, tool_call_id=payload.get("tool_call_id", ""))
    calls = [{"name": call["name"], "args": call["args"], "id": call["id"]} for call in payload.get("tool_calls", [])]
    return AIMessage(content, tool_calls=calls)
