"""Request ids and metrics.

Logs and responses contain the id of the request. The metrics are number, outcome and duration of requests by entry
point. The processes of a server share their counts through files (`gunicorn_conf.py`), so any web process reports the
totals.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import Message, Scope, Send

from moments_app.interfaces.chat.errors import FAILURES
from sessions_app.trace import HEADER, continue_trace, request_id

ENTRY_POINTS = {"/api/": "rest", "/mcp": "mcp", "/v1/": "chat", "/admin/": "admin", "/static/": "static"}
REQUEST_ID_HEADER = b"x-request-id"
NO_STATUS = "none"  # instead of a status, if the client disconnected first

SECONDS = Histogram(
    "memory_http_request_seconds",
    "Duration of requests by entry point and status, until the response is complete.",
    ["door", "status"],
    buckets=(0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, float("inf")),
)


@contextmanager
def with_request_id(scope: Scope, send: Send) -> Iterator[Send]:
    """Set a request's id, from its `traceparent` or `X-Request-Id`. Yield a `send` that adds it to the response."""
    headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    carrier = {HEADER: headers.get(HEADER.encode()) or headers.get(REQUEST_ID_HEADER, "")}
    with continue_trace(
        carrier, f"{scope.get('method', '')} {entry_point(scope.get('path', ''))}", SpanKind.SERVER
    ) as span:

        async def observe_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID_HEADER, request_id().encode())]
            await send(message)

        yield observe_and_send


@contextmanager
def with_metrics(scope: Scope, send: Send) -> Iterator[Send]:
    began = time.monotonic()
    status = NO_STATUS

    async def observe_and_send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = str(message["status"])
        await send(message)

    try:
        yield observe_and_send
    finally:
        SECONDS.labels(entry_point(scope.get("path", "")), status).observe(time.monotonic() - began)


def register(registry: CollectorRegistry) -> None:
    if settings.FIGURES_VARIABLE in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return
    for figures in (FAILURES, SECONDS):
        registry.register(figures)


def entry_point(path: str) -> str:
    return next((name for beginning, name in ENTRY_POINTS.items() if path.startswith(beginning)), "other")
