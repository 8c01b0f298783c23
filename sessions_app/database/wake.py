"""Notifications that wake idle workers when a job may be due, and the webhook sender when a delivery is due.

They are sent after the commit, because NOTIFY holds a server-wide lock until its transaction commits. If a notification
is lost, a job is delayed by at most `IDLE` seconds, because idle workers and the watchdog poll too.
"""

import os
import select
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from psycopg import Connection, Notify

from sessions_app.database.deferred_writes import WriteBuffer

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
