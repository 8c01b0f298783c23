"""A filter that adds memory to Open WebUI's chats.

Install the client in Open WebUI's Python environment, and add a function with the line
`from memory_platform.client.open_webui import Filter`. Each user of Open WebUI has their own memory, and each chat is a
conversation. Temporary chats are not stored. If the platform doesn't respond, the chat continues without memory.
"""

import logging
from typing import Any

from pydantic import BaseModel, Field

from memory_platform.client import AsyncMemory
from memory_platform.client.chat import text_of, with_memory
from memory_platform.client.errors import MemoryPlatformError

SECONDS = 2.0  # to wait for memory before an answer
UNSAVED = ("temporary:", "local:", "channel:")  # ids of chats that Open WebUI doesn't save as chats

logger = logging.getLogger(__name__)


class Filter:
    """See the module's docstring."""

    class Valves(BaseModel):
        url: str = Field("http://localhost:8000", description="URL of the memory platform")
        key: str = Field("", description="API key of the memory platform, with the write scope")
        priority: int = Field(0, description="Order of this filter among others")

    def __init__(self) -> None:
        self.valves = self.Valves()

    async def inlet(
        self, body: dict[str, Any], __user__: dict[str, Any], __metadata__: dict[str, Any]
    ) -> dict[str, Any]:
        """Add memory to a request to the model."""
        try:
            async with self._memory(__user__, __metadata__, attempts=1, timeout=SECONDS) as memory:
                return {**body, "messages": await with_memory(memory, body["messages"])}
        except MemoryPlatformError as error:
            logger.warning("A chat continues without memory: %s", error)
            return body

    async def outlet(
        self, body: dict[str, Any], __user__: dict[str, Any], __metadata__: dict[str, Any]
    ) -> dict[str, Any]:
        """Store the newest question and its answer. A round that is handled twice is stored once."""
        chat = __metadata__.get("chat_id") or ""
        turns = [
            {"role": message["role"], "content": text, "external_id": message["id"]}
            for message in body["messages"][-2:]
            if message["role"] in ("user", "assistant") and (text := text_of(message))
        ]
        if not chat or chat.startswith(UNSAVED) or not turns:
            return body
        try:
            async with self._memory(__user__, __metadata__) as memory:
                await memory.add(turns, source="open-webui")
        except MemoryPlatformError as error:
            logger.warning("A round is not stored: %s", error)
        return body

    def _memory(self, user: dict[str, Any], metadata: dict[str, Any], **options: Any) -> AsyncMemory:
        session = metadata.get("chat_id") or "default"
        return AsyncMemory(user["id"], session_id=session, url=self.valves.url, key=self.valves.key, **options)
