"""Metrics of requests per entry point: number, outcome and duration. Any web process reports the totals.

The processes of a server share their counts through files (`figures_folder.py`).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import Message, Scope, Send

from memoryproject.serving.figures_folder import VARIABLE
from moments_app.interfaces.chat.figures import FAILURES

DOORS = {"/api/": "rest", "/mcp": "mcp", "/v1/": "chat", "/admin/": "admin", "/static/": "static"}
UNANSWERED = "none"  # instead of a status, if the client disconnected first

SECONDS = Histogram(
    "memory_http_request_seconds",
    "Duration of requests by entry point and status, until the response is complete.",
    ["door", "status"],
    buckets=(0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, float("inf")),
)


@contextmanager
def measured(scope: Scope, send: Send) -> Iterator[Send]:
    """Count a request. Yield a `send` that observes the response."""
    began = time.monotonic()
    status = UNANSWERED

    async def note_and_send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = str(message["status"])
        await send(message)

    try:
        yield note_and_send
    finally:
        SECONDS.labels(door(scope.get("path", "")), status).observe(time.monotonic() - began)


def register(registry: CollectorRegistry) -> None:
    """Add the counts of this host's web processes to a registry."""
    if VARIABLE in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return
    for figures in (FAILURES, SECONDS):
        registry.register(figures)


def door(path: str) -> str:
    """Return the name of the entry point of a path."""
    return next((name for beginning, name in DOORS.items() if path.startswith(beginning)), "other")
