"""Spans, sent to an OpenTelemetry collector by OTLP over HTTP.

OpenTelemetry's own packages instrument Django, psycopg and httpx. They record URLs with their queries, error messages
and full SQL. Here, only the attributes below are passed on, and SQL without its string literals.
"""

import os
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http,database")  # current names; read at import

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Status

from sessions_app.trace import request_id

SQL = "db.query.text"
ALLOWED = {
    SQL,
    "db.namespace",
    "db.operation.name",
    "db.system.name",
    "error.type",
    "exception.type",
    "gen_ai.request.model",
    "http.request.method",
    "http.response.status_code",
    "http.route",
    "job.attempt",
    "job.id",
    "job.process",
    "server.address",
    "server.port",
}
_TEXT_IN_SQL = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)


class RequestIds(RandomIdGenerator):
    """Generates trace ids that are equal to request ids."""

    def generate_trace_id(self) -> int:
        return int(request_id() or secrets.token_hex(16), 16)


class WorkSampler(Sampler):
    """Drops spans outside of requests and jobs, because a worker polls for jobs several times per second."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(self, *args: Any, **options: Any) -> SamplingResult:
        return self._sampler.should_sample(*args, **options) if request_id() else SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return f"WorkSampler({self._sampler.get_description()})"


class FilteringExporter(SpanExporter):
    """Sends spans with only the permitted attributes."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([_filtered(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def start(process: str) -> Callable[[], None]:
    """Instrument this process, and return a function that sends the last spans. The service is named after its kind."""
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: f"memory-{process}"}
    provider = TracerProvider(resource=Resource.create(named), id_generator=RequestIds())
    provider.sampler = WorkSampler(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(FilteringExporter(OTLPSpanExporter())))
    trace.set_tracer_provider(provider)
    instrument(provider)
    return provider.shutdown


def instrument(provider: TracerProvider) -> None:
    for instrumentor in (DjangoInstrumentor(), PsycopgInstrumentor(), HTTPX2ClientInstrumentor()):
        instrumentor.instrument(tracer_provider=provider)


def _filtered(span: ReadableSpan) -> ReadableSpan:
    """Return a copy of a span without anything that may be user text."""
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_allowed(span.attributes),
        events=[Event(event.name, _allowed(event.attributes), event.timestamp) for event in span.events],
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _allowed(attributes: object) -> dict[str, str | int]:
    kept = {name: value for name, value in dict(attributes or {}).items() if name in ALLOWED}  # type: ignore[call-overload]
    if SQL in kept:
        kept[SQL] = _TEXT_IN_SQL.sub("'…'", kept[SQL])
    return kept
