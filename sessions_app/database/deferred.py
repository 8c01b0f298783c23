"""Work that is done after a request or its transaction: buffered writes, and notifications that wake other processes.

In each web process, a thread writes the buffer one second after its first item, many items at a time. If the database
is down, items stay in the buffer. If the process is killed, its buffer is lost. So use this only for data whose loss is
acceptable.
"""

import atexit
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from psycopg import Connection, Notify

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


# --- notifications ---
#
# They wake idle workers when a job may be due, and the webhook sender when a delivery is due. They are sent after the
# commit, because NOTIFY holds a server-wide lock until its transaction commits. If a notification is lost, a job is
# delayed by at most `IDLE` seconds, because idle workers and the watchdog poll too.

IDLE = 30.0  # maximum seconds between two polls of an idle worker, or of the watchdog's threads


class Channel(StrEnum):
    JOBS = "memory_jobs"  # wakes workers
    TASKS = "memory_tasks"  # wakes processes that run schedules and other tasks
    WEBHOOKS = "memory_webhooks"  # wakes the webhook sender


def wake(channel: Channel) -> None:
    """Wake the listeners of a channel after this transaction commits."""
    if not any(_SENDS[channel] in hook for hook in connection.run_on_commit):
        transaction.on_commit(_SENDS[channel])


def wake_workers() -> None:
    wake(Channel.JOBS)


def sends_from_thread() -> bool:
    """Return whether this is a web process, where a thread combines the notifications of several requests."""
    return bool(settings.PROCESS == "web")


def _send(channel: Channel) -> None:
    if sends_from_thread():
        _buffer.add(channel)
    else:
        with transaction.atomic():
            _notify([channel])


def _notify(channels: list[Channel]) -> None:
    # Commit without waiting for the disk. If the server crashes, only the notification is lost.
    statements = ["SET LOCAL synchronous_commit TO off", *(f"NOTIFY {channel}" for channel in dict.fromkeys(channels))]
    with connection.cursor() as cursor:
        cursor.execute("; ".join(statements))


_SENDS = {channel: partial(_send, channel) for channel in Channel}
_buffer = WriteBuffer("wake", _notify, is_urgent=True)


class ThreadWaker:
    """Wakes a `NotificationListener` from other threads of this process, without blocking them."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full, so the reader wakes up anyway
            os.write(self._writing, b"!")


class NotificationListener:
    """Waits for notifications on this process's database connection.

    Args:
        interrupt: A file descriptor that ends the wait when it becomes readable.
    """

    def __init__(self, *channels: Channel, interrupt: int | None = None) -> None:
        self._channels, self._interrupt = channels, interrupt
        self._listening: Connection[Any] | None = None
        self._is_notified = False

    def wait(self, seconds: float) -> bool:
        """Wait up to some seconds for a notification. Return whether one may have arrived.

        Return immediately if one has arrived since the last wait, or if the connection was not listening yet.
        """
        may_be_notified = True
        if settings.JOBS.poll_seconds:
            may_be_notified = self._sleep([], min(seconds, settings.JOBS.poll_seconds))
        elif self._listening is None or self._listening is not connection.connection:
            self._listening = self._listen()
        elif not self._is_notified:
            may_be_notified = self._sleep([self._listening.fileno()], seconds)
            _drain(self._listening)
        self._is_notified = False
        return may_be_notified

    def _listen(self) -> Connection[Any]:
        with connection.cursor() as cursor:
            cursor.execute("; ".join(f"LISTEN {channel}" for channel in self._channels))
        listening: Connection[Any] = connection.connection
        # This handles notifications that arrive together with a query's result.
        listening.add_notify_handler(self._on_notification)
        return listening

    def _on_notification(self, _notification: Notify) -> None:
        self._is_notified = True

    def _sleep(self, sources: list[int], seconds: float) -> bool:
        interrupt = [] if self._interrupt is None else [self._interrupt]
        ready, _, _ = select.select(sources + interrupt, [], [], seconds)
        for source in interrupt:
            if source in ready:
                os.read(source, 1024)
        return any(source in ready for source in sources)


def _drain(listening: Connection[Any]) -> None:
    """Read and discard all notifications. They contain no data."""
    with connection.wrap_database_errors:
        listening.pgconn.consume_input()
        while listening.pgconn.notifies():
            pass
