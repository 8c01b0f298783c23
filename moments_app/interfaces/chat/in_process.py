"""The chat endpoint called from within, for an operator who has no key: all of it but the door."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message

from moments_app.interfaces.chat import upstream
from moments_app.interfaces.chat.endpoint import relayed
from moments_app.interfaces.chat.headers import ChatSession
from moments_app.interfaces.chat.protocols import CHAT


@dataclass
class Passed:
    """What a caller gets.

    Args:
        status: of the answer.
        content: of the answer.
    """

    status: int = 0
    content: bytearray = field(default_factory=bytearray)

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        self.status = message.get("status", self.status)
        self.content += message.get("body", b"")

    @property
    def error(self) -> str:
        """The reason why there is no answer; blank where there is one. An upstream's own text may quote anything."""
        return "" if self.status < 400 else f"No answer: status {self.status}."


def pass_on(session: ChatSession, body: dict[str, Any]) -> Passed:
    """Return what the endpoint answers to a call: memory is put in, the round is stored, the upstream is asked.

    Call this in a thread without an event loop, and outside any transaction: it waits for the upstream.

    Args:
        session: that the call is about.
        body: of the call, which asks for no stream.

    Raises:
        ChatError: the body is none.
    """
    return asyncio.run(_pass_on(session, json.dumps(body).encode()))


async def _pass_on(session: ChatSession, data: bytes) -> Passed:
    passed = Passed()
    try:
        relay = await relayed(CHAT, session, CHAT.read_request(data))
        await relay({"type": "http"}, _wait, passed.send)
    finally:
        await upstream.close()
    return passed


async def _wait() -> Message:
    """Wait for the caller to hang up, who doesn't."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets the event")
