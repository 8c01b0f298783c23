"""Write buffered items in the background, many at a time, so requests don't wait for these writes.

In each web process, a thread writes the buffer one second after its first item. If the database is down, items stay in
the buffer. If the process is killed, its buffer is lost. So use this only for data whose loss is acceptable.
"""

import atexit
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from sessions_app.database.transactions import ADMIN, using_role

INTERVAL = 1.0  # seconds between the first item and the write
SHORT_INTERVAL = 0.02  # the interval for items that other processes need soon
MAX_WAITING = 10_000  # if the buffer is full, the oldest items are dropped
CONNECTION_ERRORS = (OperationalError, InterfaceError, RuntimeError)  # the embedded server raises RuntimeError

logger = structlog.get_logger(__name__)

T = TypeVar("T")
_buffers: "list[WriteBuffer[Any]]" = []


@atexit.register
def stop_all() -> None:
    """Write the buffers, and end the threads. Forks that skip `atexit` functions must call this."""
    for buffer in _buffers:
        buffer.stop()


class WriteBuffer(Generic[T]):
    """A buffer and the thread that writes it.

    Args:
        name: The name of the thread, also used in the log.
        write: Writes some items, within a transaction.
        is_urgent: Whether to write after `SHORT_INTERVAL` seconds instead of `INTERVAL`.
    """

    def __init__(self, name: str, write: Callable[[list[T]], None], *, is_urgent: bool = False) -> None:
        self._name, self._write, self._is_urgent = name, write, is_urgent
        self._waiting: deque[T] = deque(maxlen=MAX_WAITING)
        self._writing: list[T] = []
        self._lock = threading.Lock()
        self._is_down = False  # whether the database was down at the last attempt
        self._added, self._stop = threading.Event(), threading.Event()
        self._writer: threading.Thread | None = None
        _buffers.append(self)

    def add(self, item: T) -> None:
        self._waiting.append(item)
        self._added.set()
        if self._writer is None or not self._writer.is_alive():
            self._ensure_writer()

    def pending(self) -> list[T]:
        """Return buffered items that have not been written to the database yet."""
        waiting = list(self._waiting)  # read first, because items move from here to `_writing`
        return [*waiting, *self._writing]

    def flush(self) -> None:
        with self._lock:
            self._writing = list(self._waiting)
            for _ in self._writing:
                self._waiting.popleft()
            try:
                self._write_all()
            finally:
                self._writing = []

    def _write_all(self) -> None:
        if not self._writing:
            return
        try:
            # No person's role could write items of many people.
            with using_role(None if settings.PROCESS == "worker" else ADMIN), transaction.atomic():
                self._write(self._writing)
            self._is_down = False
        except CONNECTION_ERRORS as error:
            self._requeue(error)
        except DatabaseError as error:
            self._warn("not written", error)

    def _requeue(self, error: Exception) -> None:
        """Put unwritten items back, before newer ones."""
        if not self._is_down:
            self._warn("not written yet", error)
        self._is_down = True
        room = max(MAX_WAITING - len(self._waiting), 0)
        self._waiting.extendleft(reversed(self._writing[len(self._writing) - room :] if room else []))
        self._added.set()

    def _warn(self, what: str, error: Exception) -> None:
        logger.warning(what, what=self._name, count=len(self._writing), error=type(error.__cause__ or error).__name__)

    def stop(self) -> None:
        self._stop.set()
        self._added.set()
        if self._writer is not None:
            self._writer.join()
            self._writer = None
            self.flush()
            connection.close()

    def _ensure_writer(self) -> None:
        """Start the thread on first use, because threads don't survive the fork of a web process."""
        with self._lock:
            if self._writer is None or not self._writer.is_alive():
                self._stop.clear()
                self._writer = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._writer.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._added.wait()
            self._added.clear()
            self._stop.wait(SHORT_INTERVAL if self._is_urgent and not self._is_down else INTERVAL)
            try:
                self.flush()
            finally:
                connection.close()
