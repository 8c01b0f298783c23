"""A configured reranker reorders the best results. Without its answer they keep their order."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.conf import RerankSettings
from moments_app.engines import embeddings
from moments_app.models import EngineCall
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.openai_server import Behaviour, Handler, OpenAIServer

pytestmark = pytest.mark.django_db(transaction=True)

SAID = [f"The kiln {what}." for what in ("is due on Monday", "was fired twice", "stands in the shed", "costs 300")]


@pytest.fixture
def server(settings: Settings) -> Iterator[OpenAIServer]:
    """A reranker that prefers the last texts."""
    embeddings._need_texts.clear()
    with OpenAIServer() as server:
        settings.RERANK = RerankSettings(base_url=server.base_url, api_key=SecretStr("key"), model="test-reranker")
        server.always(scores(float))
        yield server


@pytest.fixture
def person() -> UserProfile:
    person = UserProfile.objects.ensure("ada")
    append(person, "s1", [NewMessage(role="user", content=text) for text in SAID])
    append(person, "s2", [NewMessage(role="user", content="Nothing of that.")])
    return person


def scores(score: Any, field: str = "relevance_score") -> Behaviour:
    """Answer like Cohere. The score of a text depends on its index."""

    def answer(handler: Handler, body: dict[str, Any]) -> None:
        results = [{"index": index, field: score(index)} for index in range(len(body["documents"]))]
        handler.send(200, json.dumps({"results": results}))

    return answer


def like_tei(handler: Handler, body: dict[str, Any]) -> None:
    """Answer like TEI, which doesn't know `documents`."""
    if "texts" not in body:
        return handler.refuse(422, "missing field `texts`")
    found = [{"index": index, "score": index / 10} for index in reversed(range(len(body["texts"])))]
    handler.send(200, json.dumps(found))


def found(service: Api, **fields: Any) -> list[str]:
    answer = service.post("memory/search", {"user_id": "ada", "query": "kiln", "kinds": ["turn"], **fields})
    return [result["content"] for result in answer.json()["results"]]


def test_results_are_in_the_rerankers_order(
    service: Api, person: UserProfile, server: OpenAIServer, settings: Settings
) -> None:
    reranked = found(service, match_count=4)
    [asked] = server.requests
    settings.RERANK = RerankSettings()
    assert asked["query"] == "kiln" and asked["model"] == "test-reranker"
    assert found(service, match_count=4) == asked["documents"][:4]
    assert reranked == asked["documents"][::-1][:4]
    assert len(server.requests) == 1


def test_a_result_ranked_low_by_fusion_can_become_the_first(
    service: Api, person: UserProfile, server: OpenAIServer
) -> None:
    [first] = found(service, match_count=1)
    assert first == server.requests[0]["documents"][-1]


def test_scores_are_descending(service: Api, person: UserProfile, server: OpenAIServer) -> None:
    answer = service.post("memory/search", {"user_id": "ada", "query": "kiln", "match_count": 4}).json()
    given = [result["score"] for result in answer["results"]]
    assert given == sorted(given, reverse=True) and len(given) > 2


def test_a_context_has_the_best_results_of_the_reranker(
    service: Api, person: UserProfile, server: OpenAIServer
) -> None:
    asked = {"user_id": "ada", "session_id": "s2", "query": "kiln", "layers": "retrieved", "max_tokens": 125}
    answer = service.get("memory/context", **asked).json()
    [retrieved] = [layer["items"] for layer in answer["layers"] if layer["name"] == "retrieved"]
    documents = server.requests[0]["documents"]
    assert 0 < len(retrieved) < len(documents)
    assert {item["text"] for item in retrieved} == set(documents[-len(retrieved) :])


def test_an_endpoint_that_takes_texts_gets_texts(service: Api, person: UserProfile, server: OpenAIServer) -> None:
    server.always(like_tei)
    first, second = found(service), found(service)
    assert first == second == server.requests[1]["texts"][::-1]
    assert ["texts" in body for body in server.requests] == [False, True, True]


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (behave.error(500), "server_error"),
        (scores(lambda index: float("nan")), "invalid_answer"),
        (scores(lambda index: "high"), "invalid_answer"),
        (scores(lambda index: True), "invalid_answer"),
        (scores(float, field="distance"), "invalid_answer"),
        (behave.raw('{"results": [{"index": 0, "relevance_score": 1}]}'), "invalid_answer"),
        (behave.raw('{"results": {}}'), "invalid_answer"),
        (behave.raw("sorry"), "invalid_answer"),
    ],
)
def test_results_keep_their_order_after_an_invalid_answer(
    service: Api, person: UserProfile, server: OpenAIServer, settings: Settings, behaviour: Behaviour, kind: str
) -> None:
    server.always(behaviour)
    failed = found(service)
    call = EngineCall.objects.get()
    assert (call.purpose, call.engine, call.error_kind) == ("rerank", "rerank:test-reranker", kind)
    settings.RERANK = RerankSettings()
    assert failed == found(service) != []


@pytest.mark.slow
def test_a_slow_reranker_gets_no_connection_and_a_timeout(
    service: Api, person: UserProfile, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moments_app.recall.query.TIMEOUT", 0.2)
    held: list[bool] = []

    def stall(handler: Handler, body: dict[str, Any]) -> None:
        held.append(connection.in_atomic_block)
        behave.stall(5)(handler, body)

    server.always(stall)
    assert found(service) and held == [False]
    assert EngineCall.objects.get().error_kind == "timeout"


def test_only_texts_of_the_person_are_reranked(service: Api, person: UserProfile, server: OpenAIServer) -> None:
    other = UserProfile.objects.ensure("bob")
    append(
        other,
        "s3",
        [NewMessage(role="user", content="My kiln is a secret."), NewMessage(role="user", content="A kiln.")],
    )
    found(service)
    assert all("secret" not in document for body in server.requests for document in body["documents"])
