"""The whole site on its own port in this process, with the test's database and settings."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import uvicorn
from django.db import connection

from memoryproject.asgi import application
from memoryproject.database import probe
from tests.support.waiting import TIMEOUT

END_SECONDS = 20  # for current requests


class _Server(uvicorn.Server):
    """A server that starts and stops immediately. Uvicorn's own polls a few times per second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_there = threading.Event()
        self._is_over = asyncio.Event()

    async def main_loop(self) -> None:
        """Serve until `end` is called."""
        self._loop = asyncio.get_running_loop()
        await self.on_tick(0)  # sets the headers of all responses
        self.is_there.set()
        await self._is_over.wait()

    def end(self) -> None:
        """Finish current requests, and end."""
        self._loop.call_soon_threadsafe(self._is_over.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait until current requests are finished."""
        for server in self.servers:
            server.close()
        for served in list(self.server_state.connections):
            served.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(0.002)


@contextmanager
def live_site() -> Iterator[str]:
    """Run the site until the block ends, and yield its base URL. Current requests are finished first.

    Its threads close their connections after each request, because they end with the site and would leave them open.
    The timeouts for a database that is down are long, because the machine may be busy.
    """
    server = _Server(uvicorn.Config(application, log_level="critical", lifespan="off", proxy_headers=False))
    at_once = patch.dict(connection.settings_dict, CONN_MAX_AGE=0)
    patient = patch.object(probe, "RESPONSE_TIMEOUT", TIMEOUT)
    with at_once, patient, socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            assert server.is_there.wait(TIMEOUT)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.end()
            thread.join()
            if probe.PROBE._connection:
                probe.PROBE._connection.close()


@contextmanager
def pooled() -> Iterator[None]:
    """Let the block's threads use a connection pool, like those of a web process, to open fewer connections."""
    own: Any = connection
    own.close()  # it belongs to no pool
    pool = {"min_size": 0, "max_size": 50, "timeout": TIMEOUT}
    options = own.settings_dict["OPTIONS"] | {"pool": pool}
    with patch.dict(own.settings_dict, OPTIONS=options, CONN_HEALTH_CHECKS=False, CONN_MAX_AGE=0):
        try:
            yield
        finally:
            own.close()
            own.close_pool()
