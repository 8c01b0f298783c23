"""The current trace: an id shared by a request, the jobs that it queues, and their calls.

Every log line has the id as `request_id`, and every response as `X-Request-Id`. A job's row stores it for the worker.
OpenTelemetry spans use the same id. Only OpenTelemetry's API is used here, which does nothing if tracing is off
(`memoryproject/telemetry`).
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from structlog.contextvars import bound_contextvars, get_contextvars

HEADER = "traceparent"  # the W3C format: version, trace, span, flags
MAX_TRACE_CHARS = 55  # maximum length of a `traceparent` in characters
_NAME = "request_id"
_HEXADECIMAL = re.compile(r"[0-9a-f]{32}")

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("memory_platform")


def request_id() -> str:
    """Return the current id, 32 hexadecimal digits, or a blank string."""
    found: str = get_contextvars().get(_NAME, "")
    return found


def traceparent() -> str:
    """Return the `traceparent` header that propagates the trace. If tracing is off, return only the id."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get(HEADER) or request_id()


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[Span]:
    """Run the block in a span. Its name and attributes must not contain user text."""
    with _tracer.start_as_current_span(name, attributes=attributes) as started:
        yield started


@contextmanager
def continue_trace(carrier: Mapping[str, str], name: str, kind: SpanKind, **attributes: str | int) -> Iterator[Span]:
    """Run the block in the trace of a carrier.

    The `traceparent` of the carrier may be only an id. If it contains no valid id, a new trace is started.
    """
    parent = _propagator.extract(carrier, context=Context())
    known = trace.get_current_span(parent).get_span_context()
    own = trace.format_trace_id(known.trace_id) if known.is_valid else _id_in(carrier.get(HEADER, ""))
    with (
        bound_contextvars(**{_NAME: own}),
        _tracer.start_as_current_span(name, context=parent, kind=kind, attributes=attributes) as started,
    ):
        yield started


def _id_in(text: str) -> str:
    """Return the id in a text, as 32 hexadecimal digits. If the text contains no valid id, return a new one."""
    plain = text.lower().replace("-", "")
    return plain if _HEXADECIMAL.fullmatch(plain) and int(plain, 16) else secrets.token_hex(16)
