"""A memory block for LlamaIndex: `Memory.from_defaults(memory_blocks=[PlatformBlock(memory=memory)])`.

The block adds a context from the person's memory for the current message. LlamaIndex passes it the messages that leave
its own short-term memory. To store messages immediately, the application calls `aput` for each round.
"""

from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemoryBlock
from pydantic import Field

from memory_platform.client import AsyncMemory

ROLES = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool", "system": "system"}


class PlatformBlock(BaseMemoryBlock[str]):
    """See the module's docstring."""

    name: str = "LongTermMemory"
    memory: AsyncMemory = Field(description="Memory of a person in a conversation.")
    max_tokens: int = Field(default=1500, description="Maximum number of tokens in a context.")

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:
        """Return the context for the user's newest message."""
        said = [message.content or "" for message in messages or [] if message.role.value == "user"]
        context = await self.memory.context(said[-1] if said else "", max_tokens=self.max_tokens)
        return str(context["context"])

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Append messages."""
        turns = [
            {"role": ROLES.get(message.role.value, "system"), "content": message.content}
            for message in messages
            if message.content
        ]
        if turns:
            await self.memory.add(turns)
