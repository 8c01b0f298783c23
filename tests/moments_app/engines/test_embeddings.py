"""The embeddings client, with a server that speaks the OpenAI protocol and may misbehave."""

import json
import time
from collections.abc import Iterator

import pytest
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.embeddings import Recipe
from moments_app.engines import embedder_for, embeddings
from moments_app.engines.embeddings import Embedder
from moments_app.engines.interface import CallRecord, EngineError
from tests.support import openai_server as behave
from tests.support.openai_server import OpenAIServer, vector_of

KEY = "sk-marked-key"
MARK = "marked-text"
WIDTH = 64
TEXTS = [f"{MARK} of kilns", f"{MARK} of glazes", f"{MARK} of bicycles"]
VECTORS = [vector_of(text, WIDTH) for text in TEXTS]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    embeddings._of_fixed_width.clear()
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def calls() -> list[CallRecord]:
    return []


@pytest.fixture
def embedder(server: OpenAIServer, calls: list[CallRecord]) -> Embedder:
    return embedder_at(server.base_url, calls)


def embedder_at(base_url: str, calls: list[CallRecord], *, timeout: float = 30) -> Embedder:
    return Embedder(
        base_url=base_url,
        api_key=KEY,
        recipe=Recipe("test-model", WIDTH),
        timeout=timeout,
        max_response_bytes=100_000,
        record=calls.append,
    )


def test_one_request_has_all_texts_and_is_recorded(
    embedder: Embedder, server: OpenAIServer, calls: list[CallRecord]
) -> None:
    assert embedder.embed(TEXTS) == VECTORS
    assert server.requests == [{"model": "test-model", "input": TEXTS, "dimensions": WIDTH, "encoding_format": "float"}]
    [call] = calls
    assert (call.purpose, call.engine, call.error_kind) == ("embedding", "openai:test-model", "")
    assert (call.input_tokens, call.output_tokens) == (9, None)


def test_unordered_vectors_are_sorted(embedder: Embedder, server: OpenAIServer) -> None:
    server.queue(behave.out_of_order)
    assert embedder.embed(TEXTS) == VECTORS


def test_integers_and_bounds_of_half_precision_are_accepted(embedder: Embedder, server: OpenAIServer) -> None:
    for number in (1, -65_504, 65_504.0, 0):
        server.queue(behave.holding(number))
        vector = embedder.embed(TEXTS)[-1]
        assert vector[WIDTH // 2] == number
        assert {type(value) for value in vector} == {float}


def test_a_long_text_is_cut_and_stripped(embedder: Embedder, server: OpenAIServer) -> None:
    embedder.embed([" \n" * 8_000 + "kilns ", "x" * 7_999 + "yz"])
    assert server.requests[0]["input"] == ["kilns", "x" * 7_999 + "y"]


@pytest.mark.parametrize("texts", [[], [""], ["kilns", " \n\t"]])
def test_a_blank_text_is_rejected_before_the_request(
    embedder: Embedder, server: OpenAIServer, calls: list[CallRecord], texts: list[str]
) -> None:
    with pytest.raises(ValueError, match="blank"):
        embedder.embed(texts)
    assert (server.requests, calls) == ([], [])


def index_of_last(index: object) -> behave.Behaviour:
    """Return the correct vectors, with this index for the last one."""
    return behave.embedding(lambda entries: entries[-1].update(index=index))


def vector_of_last(vector: object) -> behave.Behaviour:
    """Return the correct vectors, except for the last one."""
    return behave.embedding(lambda entries: entries[-1].update(embedding=vector))


NOT_JSON = "it is not JSON."
NO_LIST = "it has no list of vectors."
NOT_NUMBERED = "its vectors are not numbered from 0 to 2."
NO_NUMBERS = "the vector numbered 2 contains something other than numbers."
TOO_LARGE = "the vector numbered 2 contains a number that is not finite or is over 65,504."
ALL_ZEROS = "the vector numbered 2 is all zeros."
INVALID_ANSWERS = [
    (behave.raw("garbage"), NOT_JSON),
    (behave.raw("[" * 50_000), NOT_JSON),
    (behave.raw("[" + "9" * 5_000 + "]"), NOT_JSON),
    (behave.raw("null"), NO_LIST),
    (behave.raw("{}"), NO_LIST),
    (behave.raw('{"data": {}}'), NO_LIST),
    (behave.raw('{"data": [null, 1, "x"]}'), NO_LIST),
    (behave.fewer_vectors, "it has 2 vectors, not 3."),
    (behave.embedding(lambda entries: entries.append(entries[0])), "it has 4 vectors, not 3."),
    (index_of_last(1), NOT_NUMBERED),
    (index_of_last(-1), NOT_NUMBERED),
    (index_of_last("2"), NOT_NUMBERED),
    (index_of_last(2.0), NOT_NUMBERED),
    (index_of_last([2]), NOT_NUMBERED),
    (behave.embedding(lambda entries: entries[1].update(index=True)), NOT_NUMBERED),
    (behave.of_width(2 * WIDTH), "the vector numbered 0 has 128 numbers, not 64."),
    (vector_of_last([]), "the vector numbered 2 has 0 numbers, not 64."),
    (vector_of_last(MARK), "the vector numbered 2 is not a list of numbers."),
    (behave.holding("0.5"), NO_NUMBERS),
    (behave.holding(None), NO_NUMBERS),
    (behave.holding(True), NO_NUMBERS),
    (behave.holding(float("nan")), TOO_LARGE),
    (behave.holding(float("-inf")), TOO_LARGE),
    (behave.holding(-65_504.1), TOO_LARGE),
    (behave.holding(10**400), TOO_LARGE),
    (vector_of_last([0.0, -0.0] * (WIDTH // 2)), ALL_ZEROS),
    (vector_of_last([1e-9] * WIDTH), ALL_ZEROS),
    (behave.packed(json.dumps(behave.embeddings_of({"input": TEXTS, "dimensions": WIDTH}))), NOT_JSON),
]


@pytest.mark.parametrize(("behaviour", "problem"), INVALID_ANSWERS)
def test_an_invalid_answer_is_rejected_and_the_error_says_why(
    embedder: Embedder, server: OpenAIServer, calls: list[CallRecord], behaviour: behave.Behaviour, problem: str
) -> None:
    server.always(behaviour)
    with pytest.raises(EngineError) as raised:
        embedder.embed(TEXTS)
    assert raised.value.kind == "invalid_answer"
    assert str(raised.value) == f"openai:test-model gave no valid answer: {problem}"
    assert [(call.error_kind, call.error) for call in calls] == [("invalid_answer", str(raised.value))]


FAILED_CALLS = [
    (behave.error(500), "server_error"),
    (behave.error(401, detail=f"bad key {KEY}"), "credential"),
    (behave.error(404, detail=f"no such model for {MARK}"), "address"),
    (behave.error(429, {"Retry-After": "7"}), "rate_limited"),
    (behave.hang_up, "unavailable"),
    (behave.stall(60), "timeout"),
    (behave.drip(60), "timeout"),
    (behave.slow_headers(60), "timeout"),
    (behave.raw("x" * 200_000), "too_large"),
    (behave.of_width(200 * WIDTH), "too_large"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("behaviour", "kind"), FAILED_CALLS)
def test_row_20_a_failed_call_has_its_kind_and_reveals_neither_key_nor_text(
    server: OpenAIServer,
    calls: list[CallRecord],
    caplog: pytest.LogCaptureFixture,
    behaviour: behave.Behaviour,
    kind: str,
) -> None:
    caplog.set_level("DEBUG")
    server.always(behaviour)
    embedder = embedder_at(server.base_url, calls, timeout=0.5 if kind == "timeout" else 30)
    started = time.monotonic()
    with pytest.raises(EngineError) as raised:
        embedder.embed(TEXTS)
    assert time.monotonic() - started < 30  # some responses would take 60 s
    assert raised.value.kind == kind
    assert raised.value.retry_after == (7 if kind == "rate_limited" else None)
    assert [call.error_kind for call in calls] == [kind]
    assert len(server.requests) == 1
    told = f"{raised.value!r} {calls} {embedder!r} {vars(raised.value)} {caplog.text}"
    assert KEY not in told
    assert MARK not in told


class TestAnEndpointThatRefusesToBeToldAWidth:
    @pytest.mark.parametrize("status", [400, 422])
    def test_later_requests_omit_the_width(
        self, embedder: Embedder, server: OpenAIServer, calls: list[CallRecord], status: int
    ) -> None:
        server.always(behave.of_fixed_width(WIDTH, status))
        assert embedder.embed(TEXTS) == embedder.embed(TEXTS) == VECTORS
        assert ["dimensions" in body for body in server.requests] == [True, False, False]
        assert [call.error_kind for call in calls] == ["rejected", "", ""]

    def test_requests_for_another_model_still_have_the_width(self, embedder: Embedder, server: OpenAIServer) -> None:
        server.queue(behave.of_fixed_width(WIDTH), behave.of_fixed_width(WIDTH))
        embedder.embed(TEXTS)
        other = Embedder(
            base_url=server.base_url,
            api_key=KEY,
            recipe=Recipe("other", WIDTH),
            timeout=30,
            max_response_bytes=100_000,
            record=lambda call: None,
        )
        other.embed(TEXTS)
        assert "dimensions" in server.requests[-1]

    def test_the_width_is_requested_again_if_the_default_width_is_wrong(
        self, embedder: Embedder, server: OpenAIServer, calls: list[CallRecord]
    ) -> None:
        server.always(behave.of_fixed_width(32))
        with pytest.raises(EngineError, match="has 32 numbers, not 64"):
            embedder.embed(TEXTS)
        assert [call.error_kind for call in calls] == ["rejected", "invalid_answer"]
        server.always(behave.answer_well)
        embedder.embed(TEXTS)
        assert "dimensions" in server.requests[-1]

    def test_an_endpoint_that_rejects_everything_gets_two_requests(
        self, embedder: Embedder, server: OpenAIServer, calls: list[CallRecord]
    ) -> None:
        server.always(behave.error(400))
        with pytest.raises(EngineError, match="status 400"):
            embedder.embed(TEXTS)
        assert [call.error_kind for call in calls] == ["rejected", "rejected"]

    @pytest.mark.slow
    def test_both_calls_share_one_deadline(self, server: OpenAIServer, calls: list[CallRecord]) -> None:
        server.queue(behave.stall(4, behave.error(400)), behave.stall(60))
        started = time.monotonic()
        with pytest.raises(EngineError) as raised:
            embedder_at(server.base_url, calls, timeout=5).embed(TEXTS)
        assert raised.value.kind == "timeout"
        assert time.monotonic() - started < 9  # the duration with five seconds per call


def test_the_configured_embedder_accepts_a_full_batch_of_long_numbers(
    server: OpenAIServer, calls: list[CallRecord], settings: Settings
) -> None:
    settings.EMBEDDING = settings.EMBEDDING.model_copy(
        update={"base_url": server.base_url, "api_key": SecretStr(KEY), "batch_size": 20}
    )

    def indented(handler: behave.Handler, body: dict[str, object]) -> None:
        handler.send(
            200, json.dumps(behave.embeddings_of(body), indent=2).replace(" 0.0,", " -0.00012345678901234567,")
        )

    server.always(indented)
    embedder = embedder_for(Recipe("wide-model", 4_000), timeout=20, record=calls.append)
    vectors = embedder.embed([f"text {number}" for number in range(20)])
    assert {len(vector) for vector in vectors} == {4_000}
    assert (embedder.name, server.requests[0]["model"]) == ("openai:wide-model", "wide-model")
