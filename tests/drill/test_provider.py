"""The drill's stand-in for models: engines accept its answers, and it fails on request."""

import http.client
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from drill.ledger import new_mark
from drill.load import came_to_its_end
from drill.provider import Provider, refusing, refusing_text
from moments_app.engines.calls.formation import FormationRequest, StreamSection
from moments_app.engines.calls.moments import Journey, MomentRequest
from moments_app.engines.calls.texts import ConsolidationRequest, DigestRequest, LabeledText, SummaryRequest
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.engines.model import ModelEngine
from moments_app.engines.transcript import Turn

TURNS = [
    Turn(
        index=number,
        role="user",
        content=f"{new_mark()} was said by the user in a drill.",
        created_at=datetime(2026, 3, 2, 8, tzinfo=UTC),
    )
    for number in range(25)
]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setattr("drill.provider.LATENCY", 0)
    with Provider() as provider:
        yield provider


@pytest.fixture
def records() -> list[CallRecord]:
    return []


@pytest.fixture
def engine(provider: Provider, records: list[CallRecord]) -> ModelEngine:
    return ModelEngine(base_url=provider.base_url, api_key="k", model="m", record=records.append)


def post(provider: Provider, path: str, body: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(provider.base_url).netloc, timeout=10)
    connection.request("POST", f"/v1{path}", json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_every_call_of_an_engine_gets_a_valid_answer(engine: ModelEngine, records: list[CallRecord]) -> None:
    moments = engine.build_moments(MomentRequest(TURNS, Journey(), "p")).moments
    assert [(one.starts_at_message_idx, one.ends_at_message_idx) for one in moments] == [(0, 19), (20, 24)]
    assert engine.roll_summary(SummaryRequest(TURNS, "", (), 0, "p")).summary_text
    section = StreamSection("s", "p", 0, 20, "")
    assert engine.form_memories(FormationRequest(TURNS, [section], "p")).streams[0]["facts"]
    consolidation = ConsolidationRequest("p", (), (), [LabeledText("o1", "Said.")], 100, "r")
    assert engine.consolidate(consolidation).lines[0].carries == ["o1"]
    assert engine.digest(DigestRequest(TURNS, "", 100, "p")).context
    assert len(records) == 5 and not any(record.dropped for record in records)


@pytest.mark.slow
def test_a_streamed_completion_contains_the_mark(provider: Provider) -> None:
    mark = new_mark()
    body = {"stream": True, "messages": [{"role": "user", "content": f"Please note {mark}."}]}
    _, text = post(provider, "/chat/completions", body)
    assert came_to_its_end(text.encode()) and not came_to_its_end(text.rpartition("data: ")[0].encode())
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    said = "".join(json.loads(event)["choices"][0]["delta"]["content"] for event in events)
    assert mark in said


@pytest.mark.slow
def test_a_streamed_response_contains_the_mark_and_an_end(provider: Provider) -> None:
    mark = new_mark()
    _, text = post(provider, "/responses", {"stream": True, "input": [{"role": "user", "content": f"Note {mark}."}]})
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    end = events.pop()
    said = "".join(event["delta"] for event in events)
    assert mark in said and end["response"]["output"][0]["content"][0]["text"] == said
    assert came_to_its_end(text.encode()) and not came_to_its_end(text.rpartition("data: ")[0].encode())


def test_a_text_has_the_same_vector_each_time(provider: Provider) -> None:
    answers = [post(provider, "/embeddings", {"input": ["kiln", "glaze"], "dimensions": 64})[1] for _ in range(2)]
    assert answers[0] == answers[1]
    one, two = (entry["embedding"] for entry in json.loads(answers[0])["data"])
    assert one != two and len(one) == 64


def test_configured_calls_are_refused_and_every_call_is_counted(provider: Provider, engine: ModelEngine) -> None:
    provider.failure = refusing(401)
    with pytest.raises(EngineError) as error:
        engine.digest(DigestRequest(TURNS, "", 100, "p"))
    assert error.value.kind == "credential"
    provider.failure = refusing_text("poison", 400)
    assert post(provider, "/embeddings", {"input": "poison"})[0] == 400
    assert post(provider, "/embeddings", {"input": "honey"})[0] == 200
    assert provider.calls == 3
