"""Receipts of served contexts: noted on the request path, written behind it, many at once.

A thread of each web process writes what has come in every second. What a killed process had not written yet is lost:
receipts are a record of reading, nothing rests on them.
"""

import atexit
import threading
from collections import deque

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from moments_app.models import ContextReceipt
from sessions_app.models import Session

EVERY = 1.0  # seconds
MOST_WAITING = 10_000  # while the database is away the oldest are let go

logger = structlog.get_logger(__name__)

_waiting: deque[ContextReceipt] = deque(maxlen=MOST_WAITING)
_lock = threading.Lock()
_writer: threading.Thread | None = None
_stop = threading.Event()


def keep(receipt: ContextReceipt) -> None:
    """Notes a receipt; returns at once."""
    if settings.MEMORY_CONTEXT.receipt_days:
        _waiting.append(receipt)
        if _writer is None or not _writer.is_alive():
            _ensure_writer()


def flush() -> None:
    """Writes what is waiting."""
    with _lock:
        batch = [_waiting.popleft() for _ in range(len(_waiting))]
        if not batch:
            return
        try:
            with transaction.atomic():
                # Sessions may have been deleted since.
                there = Session.objects.select_for_update(no_key=True).filter(pk__in={r.session_id for r in batch})
                kept = set(there.order_by("pk").values_list("pk", flat=True))
                ContextReceipt.objects.bulk_create([r for r in batch if r.session_id in kept], batch_size=500)
        except DatabaseError as error:
            logger.warning("receipts not written", count=len(batch), error=type(error).__name__)


@atexit.register
def stop() -> None:
    """Ends the thread and writes what is waiting."""
    global _writer
    _stop.set()
    if _writer is not None:
        _writer.join()
        _writer = None
        flush()
        connection.close()


def _ensure_writer() -> None:
    """Starts the thread in the process that needs it: web processes are forked."""
    global _writer
    with _lock:
        if _writer is None or not _writer.is_alive():
            _stop.clear()
            _writer = threading.Thread(target=_write, name="context-receipts", daemon=True)
            _writer.start()


def _write() -> None:
    while not _stop.wait(EVERY):
        try:
            flush()
        finally:
            connection.close()
