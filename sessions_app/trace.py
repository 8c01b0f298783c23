"""The trace of the work under way: one id for a request, the jobs that it asks for, and the calls that these make.

Every line that is logged has it as `request_id`, every answer as `X-Request-Id`, and a job's row keeps it for the
worker that takes the job. Spans of OpenTelemetry have the same id. Only its API is used here, which does nothing where
nobody asked for spans (`memoryproject/telemetry`).
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

HEADER = "traceparent"  # as the W3C has it: version, trace, span, flags
LONGEST = 55  # characters of it
_NAME = "request_id"
_HEXADECIMAL = re.compile(r"[0-9a-f]{32}")

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("memory_platform")


def request_id() -> str:
    """Return the id of the work under way, 32 hexadecimal digits; blank outside of any."""
    found: str = get_contextvars().get(_NAME, "")
    return found


def traceparent() -> str:
    """Return what has others go on with the trace: a `traceparent`, or the id alone where nobody asked for spans."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get(HEADER) or request_id()


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[Span]:
    """Have a part of the work under way be a span.

    Args:
        name: the same for all of its kind.
        attributes: names and numbers, never what somebody said.
    """
    with _tracer.start_as_current_span(name, attributes=attributes) as started:
        yield started


@contextmanager
def continued(carrier: Mapping[str, str], name: str, kind: SpanKind, **attributes: str | int) -> Iterator[Span]:
    """Have the work under way be a part of a trace that began elsewhere; of a new one where there is none.

    Args:
        carrier: may have a `traceparent`, or an id in the place of one.
        name, attributes: of the span, as in `span`.
        kind: of the span.
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
    """Return an id that somebody gave, as 32 digits or as a UUID; else a new one."""
    plain = text.lower().replace("-", "")
    return plain if _HEXADECIMAL.fullmatch(plain) and int(plain, 16) else secrets.token_hex(16)
