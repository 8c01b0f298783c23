"""Spans: one trace through a request, the job that it queues, and the model call of the job."""

import json
import subprocess
import sys

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memoryproject.conf import BASE_DIR
from moments_app.models import Job
from sessions_app.models import ApiKey
from tests.support.openai_server import OpenAIServer
from tests.support.processes import environment
from tests.support.receiver import Receiver

pytestmark = pytest.mark.django_db(transaction=True)

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"
SECRET = "zebra-finch"


def spans(collector: Receiver) -> list[Span]:
    """Return the spans that the collector received."""
    requests = [ExportTraceServiceRequest.FromString(body) for body in collector.bodies]
    scopes = [scope for request in requests for sent in request.resource_spans for scope in sent.scope_spans]
    return [span for scope in scopes for span in scope.spans]


def above(span: Span, sent: list[Span]) -> list[str]:
    """Return the names of a span and its ancestors, up to the root."""
    by_id = {each.span_id: each for each in sent}
    parent = by_id.get(span.parent_span_id)
    return [span.name, *(above(parent, sent) if parent else ())]


@pytest.mark.slow(seconds=8)
def test_a_request_its_job_and_its_model_call_share_one_trace_without_user_text() -> None:
    key = ApiKey.objects.issue("test")[1]
    turns = [{"role": role, "content": f"{SECRET} '{SECRET}'"} for role in ("user", "assistant") * 3]
    path, body = f"/api/v1/sessions/{SECRET}/messages?some={SECRET}", {"user_id": SECRET, "messages": turns}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "traceparent": CALLER}
    with Receiver() as collector, OpenAIServer() as model:
        told = environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            ENGINE__BASE_URL=model.base_url,
            MOMENT_BUILDER__MESSAGE_THRESHOLD="4",
            MOMENT_BUILDER__LAG_MESSAGES="0",
        )
        command = ["-m", "tests.support.one_trace", path, json.dumps(body), json.dumps(headers)]
        ran = subprocess.run(
            [sys.executable, *command], cwd=BASE_DIR, env=told, check=True, capture_output=True, text=True
        )
        sent = spans(collector)
    assert ran.stdout == TRACE
    assert Job.objects.get(process="build_moments").trace.startswith(f"00-{TRACE}-")
    assert {span.trace_id.hex() for span in sent if span.name != "job count_words"} == {TRACE}
    called = next(span for span in sent if span.name == "POST")
    route = "POST api/v1/sessions/<public_id:session_id>/messages"
    assert above(called, sent) == ["POST", "model call /chat/completions", "job build_moments", route, "POST rest"]
    assert SECRET.encode() not in b"".join(collector.bodies)
    statements = [each.value.string_value for span in sent for each in span.attributes if each.key == "db.query.text"]
    assert any(text.startswith("INSERT INTO") for text in statements)
