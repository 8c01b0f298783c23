"""Uvicorn's server, changed in two ways.

While idle, it wakes up every few seconds instead of ten times a second. And after a signal, it only returns. Uvicorn
would raise the signal again, which ends the process before pending data are written and sent.
"""

import asyncio
import signal
from contextlib import suppress
from email.utils import formatdate
from types import FrameType

from uvicorn import Config, Server
from uvicorn.server import ServerState

TICK = 20.0  # seconds between two wake-ups; gunicorn expects a heartbeat within 60 seconds

Headers = list[tuple[bytes, bytes]]


class _State(ServerState):
    """A state that makes the header `Date` for each response, so no timer has to update it."""

    @property
    def default_headers(self) -> Headers:
        return [(b"date", formatdate(usegmt=True).encode()), *self._others]

    @default_headers.setter
    def default_headers(self, others: Headers) -> None:
        self._others = others


class QuietServer(Server):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        config.date_header = False
        self.server_state = _State()
        self._exits = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._exits.wait(), TICK)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
        self.should_exit = True
        if self._loop:
            self._loop.call_soon_threadsafe(self._exits.set)
