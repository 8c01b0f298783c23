"""Call the chat endpoint from within the process, for an operator without a key. This only skips the entry checks."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message

from moments_app.interfaces.chat.endpoint import relayed
from moments_app.interfaces.chat.protocols import CHAT
from moments_app.interfaces.chat.relay import close_upstream
from moments_app.interfaces.chat.request import ChatSession


@dataclass
class Passed:
    """The response that the caller receives."""

    status: int = 0
    content: bytearray = field(default_factory=bytearray)

    async def send(self, message: Message) -> None:
        """Receive a part of the response."""
        self.status = message.get("status", self.status)
        self.content += message.get("body", b"")

    @property
    def error(self) -> str:
        """The reason why there is no answer; blank if there is one.

        An upstream's own text is left out, because it may quote anything.
        """
        return "" if self.status < 400 else f"No answer: status {self.status}."


def pass_on(session: ChatSession, body: dict[str, Any]) -> Passed:
    """Return the endpoint's response to a call: add memory, store the round, call the upstream.

    Call this in a thread without an event loop, and outside any transaction: it waits for the upstream.

    Args:
        body: the body of the call, which doesn't request a stream.

    Raises:
        ChatError: the body is invalid.
    """
    return asyncio.run(_pass_on(session, json.dumps(body).encode()))


async def _pass_on(session: ChatSession, data: bytes) -> Passed:
    passed = Passed()
    try:
        relay = await relayed(CHAT, session, CHAT.read_request(data))
        await relay({"type": "http"}, _wait, passed.send)
    finally:
        await close_upstream()
    return passed


async def _wait() -> Message:
    """Wait for the caller to disconnect, which never happens."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets the event")
