"""A database that hangs: a proxy socket that can be frozen."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.db import connection

from tests.support.waiting import TIMEOUT


class Gate:
    """Passes bytes between clients and the database while it is open.

    Args:
        folder: The folder for its socket.
        target: The database's own socket.

    Attributes:
        holds: Whether something is waiting.
    """

    def __init__(self, folder: Path, target: Path) -> None:
        self._path, self._target = folder / target.name, target
        self._loop = asyncio.new_event_loop()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._ready = threading.Event()
        self.holds = threading.Event()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(TIMEOUT)

    def freeze(self) -> None:
        """Stop passing bytes."""
        self._loop.call_soon_threadsafe(self._is_open.clear)

    def thaw(self) -> None:
        """Pass the waiting bytes, and continue."""
        self._loop.call_soon_threadsafe(self._is_open.set)

    async def _serve(self) -> None:
        async with await asyncio.start_unix_server(self._connected, self._path):
            self._ready.set()
            await asyncio.Event().wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._target)
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not self._is_open.is_set():
                    self.holds.set()
                    await self._is_open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@contextmanager
def gate() -> Iterator[tuple[Gate, str]]:
    """Yield a gate to the test database, and its URL."""
    connection.ensure_connection()
    info = connection.connection.info
    with tempfile.TemporaryDirectory(prefix="memory-gate-") as folder:
        made = Gate(Path(folder), Path(info.host) / f".s.PGSQL.{info.port}")
        made.start()
        yield made, f"postgresql://{info.user}:{info.password}@/{info.dbname}?host={folder}&port={info.port}"
