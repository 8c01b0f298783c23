"""Add memory to chat messages in OpenAI's format. Adapters use this module to change requests to a model."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from memory_platform.client import AsyncMemory

ChatMessage = Mapping[str, Any]

FRAME = ("policy", "query")  # layers of every context
BESIDE_HISTORY = ("collective", "user", "moments", "retrieved", "entities")  # layers that don't repeat the history
INSTRUCTIONS = ("system", "developer")
QUERY_CHARS = 1_000  # of the user's message that are used to search memory


def newest_message(messages: Sequence[ChatMessage]) -> str:
    """Return the text of the last message if the user wrote it. Otherwise, return a blank string."""
    return text_of(messages[-1]) if messages and messages[-1].get("role") == "user" else ""


def text_of(message: ChatMessage) -> str:
    """Return the text of a message, without images and other parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")


async def with_memory(memory: AsyncMemory, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages, with memory that fits the newest one. The memory follows the instructions.

    If the messages contain no history, the newest turns of the conversation are added too. If there is no memory, the
    messages are returned unchanged.
    """
    query = newest_message(messages)[:QUERY_CHARS]
    if not query.strip():
        return list(messages)
    has_history = any(message["role"] not in (*INSTRUCTIONS, "user") for message in messages)
    layers = BESIDE_HISTORY if has_history else None
    context = await memory.context(query, format="messages", layers=layers, retrieval="relevant")
    if not any(layer["items"] for layer in context["layers"] if layer["name"] not in FRAME):
        return list(messages)
    *known, _ = cast(list[ChatMessage], context["context"])  # the last one is the query
    first = next(place for place, message in enumerate(messages) if message["role"] not in INSTRUCTIONS)
    reminder = {"role": "system", "content": "\n\n".join(text_of(one) for one in known if one["role"] == "system")}
    turns = [message for message in known if message["role"] != "system"]
    return [*messages[:first], reminder, *turns, *messages[first:]]
