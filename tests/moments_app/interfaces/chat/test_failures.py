"""The response and the stored turns when something fails: the request, the upstream, the caller, or memory."""

import http.client
import json
import threading
import time
from contextlib import closing
from typing import Any

import httpx2
import openai
import psycopg
import pytest
from prometheus_client import REGISTRY
from pytest_django.fixtures import Settings

from sessions_app.models import ApiKey, Message, Session
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.chat import Client, ask, database_away, stored
from tests.support.concurrency import at_once
from tests.support.contract import check
from tests.support.openai_server import OpenAIServer
from tests.support.processes import database_url, environment, web
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

CHAT = "/v1/chat/completions"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def post(site: str, key: str, body: Any = HELLO, **headers: str) -> tuple[int, Any, Any]:
    """Return status, headers and body of a response, which must match the OpenAPI schema. `body` may be bytes."""
    named = {"Authorization": f"Bearer {key}", "X-User-Id": "ada", "X-Session-Id": "s1"}
    sent = {name.encode(): value.encode("latin-1") for name, value in (named | headers).items() if value}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with httpx2.Client(timeout=30, trust_env=False) as http:
        answer = http.post(f"{site}{CHAT}", content=data, headers=sent)
    check("post", CHAT, answer)
    return answer.status_code, answer.headers, answer.json()


def incomplete() -> list[tuple[str, str]]:
    """Return the content of incomplete turns, and the reason."""
    turns = Message.objects.turns().in_order()
    return [(turn.content, turn.metadata["incomplete"]) for turn in turns if "incomplete" in turn.metadata]


# --- the request ---


def test_a_call_without_user_or_session_is_rejected(site: str, key: str, upstream: OpenAIServer) -> None:
    for headers, status, code, named in (
        ({"X-User-Id": ""}, 400, "missing_user_id", "X-User-Id"),
        ({"X-User-Id": "a/b"}, 400, "invalid_header", "X-User-Id"),
        ({"X-Session-Id": "s" * 256}, 400, "invalid_header", "X-Session-Id"),
        ({"X-Session-Id": "\xff"}, 400, "invalid_header", "X-Session-Id"),
        ({"X-Session-Id": ".."}, 400, "invalid_header", "can't be '.' or '..'"),
        ({"Authorization": ""}, 401, "invalid_api_key", "key"),
        ({"Authorization": "Bearer mem_000000000000_wrong"}, 401, "invalid_api_key", "key"),
        ({"Authorization": "Basic YTpi"}, 401, "invalid_api_key", "key"),
    ):
        answered, _, body = post(site, key, **headers)
        assert (answered, body["error"]["code"]) == (status, code), headers
        assert body["error"]["type"] == "invalid_request_error"
        assert named in body["error"]["message"]
    assert upstream.requests == []
    assert not Session.objects.exists()


def test_a_body_that_is_not_a_conversation_is_rejected_without_quoting_it(
    site: str, key: str, upstream: OpenAIServer
) -> None:
    bodies: list[tuple[Any, str, str]] = [
        (b"{", "invalid_json", "not valid JSON"),
        (b'{"messages": NaN}', "invalid_json", "not valid JSON"),
        (json.dumps(HELLO)[:-1].encode() + b', "temperature": 1e400}', "invalid_json", ""),
        (b"[" * 100_000, "invalid_json", "nested"),
        (b"[]", "invalid_messages", "messages"),
        ({"model": "m"}, "invalid_messages", "messages"),
        ({"messages": []}, "invalid_messages", "messages"),
        ({"messages": ["hello"]}, "invalid_message", "messages[0]"),
        ({"messages": [*HELLO["messages"], {"role": "king", "content": "x"}]}, "invalid_message", "messages[1]: role"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "invalid_message", "messages[0]: content"),
        ({"messages": [{"role": "user", "content": "x" * 200_001}]}, "invalid_message", "200000"),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, "invalid_message", "messages[0]: content"),
    ]
    for body, code, told in bodies:
        status, _, answer = post(site, key, body)
        assert (status, answer["error"]["code"]) == (400, code), str(body)[:100]
        assert told in answer["error"]["message"]
        assert "king" not in answer["error"]["message"]
    assert upstream.requests == []


def test_a_call_with_a_lone_surrogate_has_memory(site: str, key: str, upstream: OpenAIServer) -> None:
    status, answered, _ = post(site, key, HELLO | {"model": "m\ud800"})
    assert (status, answered["X-Memory"]) == (200, "applied")
    assert upstream.requests[-1]["model"] == "m\ud800"


def test_calls_are_limited_in_size_and_rate(site: str, key: str, settings: Settings) -> None:
    settings.API_MAX_BODY_BYTES = 2_000
    status, _, answer = post(site, key, {"messages": [{"role": "user", "content": "x" * 3_000}]})
    assert (status, answer["error"]["code"]) == (413, "too_large")
    settings.API_RATE = 1
    answers = at_once(lambda _: post(site, key), 8)
    refused = [headers for status, headers, _ in answers if status == 429]
    assert refused
    assert int(refused[0]["Retry-After"]) >= 1


def test_a_read_key_cannot_chat(site: str, upstream: OpenAIServer) -> None:
    status, _, answer = post(site, ApiKey.objects.issue("reader", scope="read")[1])
    assert (status, answer["error"]["code"]) == (403, "insufficient_scope")
    assert upstream.requests == []


def test_row_36_requests_from_unknown_hosts_and_sites_are_refused_before_the_key_is_checked(
    site: str, key: str, upstream: OpenAIServer, settings: Settings
) -> None:
    for headers, code, status in (
        ({"Host": "evil.example"}, "unknown_host", 400),
        ({"Origin": "https://evil.example"}, "other_site", 403),
    ):
        told, _, answer = post(site, key, **headers)
        assert (told, answer["error"]["code"]) == (status, code)
    settings.SECURE_SSL_REDIRECT = True
    told, _, answer = post(site, key)
    assert (told, answer["error"]["code"]) == (403, "https_required")
    assert httpx2.get(f"{site}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 403
    assert upstream.requests == []


def test_without_an_upstream_the_error_says_so(site: str, key: str, settings: Settings) -> None:
    settings.CHAT = settings.CHAT.model_copy(update={"upstream_base_url": ""})
    status, _, answer = post(site, key)
    assert (status, answer["error"]["code"]) == (503, "no_upstream")


@pytest.mark.parametrize("stream", [False, True])
def test_answers_match_the_schema(site: str, key: str, upstream: OpenAIServer, stream: bool) -> None:
    upstream.always(behave.streamed("Noted.") if stream else behave.content("Noted."))
    named = {"Authorization": f"Bearer {key}", "X-User-Id": "ada", "X-Session-Id": "s1"}
    for path, body in ((CHAT, HELLO), ("/v1/responses", {"model": "m", "input": "Hello"})):
        answer = httpx2.post(f"{site}{path}", json=body | {"stream": stream}, headers=named)
        assert answer.status_code == 200
        check("post", path, answer)
    answer = httpx2.get(f"{site}/v1/models", headers=named)
    assert answer.status_code == 200
    check("get", "/v1/models", answer)


def test_errors_of_other_addresses_and_methods_have_the_same_shape(site: str, client: Client) -> None:
    for method, path, code in (
        ("post", "/v1/embeddings", "not_found"),
        ("get", CHAT, "method_not_allowed"),
        ("get", "/v1/models", "invalid_api_key"),
        ("post", "/v1/responses", "invalid_api_key"),
    ):
        answer = httpx2.request(method, f"{site}{path}")
        check(method, path, answer)
        assert answer.json()["error"]["code"] == code
    with pytest.raises(openai.NotFoundError):
        client().embeddings.create(model="m", input="x")


# --- the upstream ---


@pytest.mark.parametrize("status", [400, 429])
def test_an_upstreams_rejection_is_passed_on_and_is_not_a_round(
    site: str, key: str, upstream: OpenAIServer, status: int
) -> None:
    limits = {"Retry-After": "7", "X-RateLimit-Remaining": "0", "Set-Cookie": "a=b"}
    upstream.queue(behave.error(status, limits, detail="no such thing"))
    answered, headers, body = post(site, key)
    error = {"message": "no such thing", "type": "invalid_request_error", "param": None, "code": None}
    assert (answered, body) == (status, {"error": error})
    assert (headers["Retry-After"], headers["X-RateLimit-Remaining"]) == ("7", "0") and "Set-Cookie" not in headers
    post(site, key)
    assert stored(2) == [("user", "Hello"), ("assistant", "Noted.")]


def test_a_message_is_stored_once_although_the_upstream_fails(client: Client, upstream: OpenAIServer) -> None:
    upstream.queue(behave.error(500), behave.hang_up)
    for kind in (openai.InternalServerError, openai.APIStatusError):
        with pytest.raises(kind):
            ask(client(), "Hello")
    assert stored(1) == [("user", "Hello")]
    ask(client(), "Hello")
    assert stored(2) == [("user", "Hello"), ("assistant", "Noted.")]
    assert incomplete() == [("Hello", "unfinished")]


@pytest.mark.parametrize("text", ["", None])
def test_an_empty_answer_is_marked_incomplete(client: Client, upstream: OpenAIServer, text: str | None) -> None:
    upstream.queue(behave.content(text))
    ask(client(), "Hello")
    assert stored(1) == [("user", "Hello")]
    wait_until(lambda: bool(incomplete()))
    assert incomplete() == [("Hello", "empty")]


def test_an_unresponsive_upstream_is_a_timeout(site: str, key: str, upstream: OpenAIServer, settings: Settings) -> None:
    settings.CHAT = settings.CHAT.model_copy(update={"read_timeout_seconds": 0.3})
    upstream.queue(behave.stall(60))
    status, headers, answer = post(site, key)
    assert (status, answer["error"]["code"], headers["X-Memory"]) == (504, "upstream_timeout", "applied")
    stored(1)
    assert incomplete() == [("Hello", "upstream_timeout")]


def test_an_unavailable_upstream_is_reported(site: str, key: str, settings: Settings) -> None:
    settings.CHAT = settings.CHAT.model_copy(update={"upstream_base_url": "http://127.0.0.1:1/v1"})
    status, _, answer = post(site, key)
    assert (status, answer["error"]["code"]) == (502, "upstream_unavailable")


def test_a_stalled_stream_ends_with_an_error_and_its_text_is_stored(
    client: Client, upstream: OpenAIServer, settings: Settings
) -> None:
    settings.CHAT = settings.CHAT.model_copy(update={"read_timeout_seconds": 0.8})
    upstream.always(behave.streamed("Half", " an", end=behave.stall(60)))
    texts = []
    with pytest.raises(openai.APIError, match="in time"):
        for part in ask(client(), "Hello", stream=True):
            texts.append(part.choices[0].delta.content or "")
    assert "".join(texts) == "Half an"
    stored(2)
    assert incomplete() == [("Half an", "upstream_timeout")]


def test_an_aborted_stream_ends_with_an_error_and_its_text_is_stored(client: Client, upstream: OpenAIServer) -> None:
    upstream.always(behave.streamed("Half", end=behave.hang_up))
    with pytest.raises(openai.APIError, match="can't be reached"):
        list(ask(client(), "Hello", stream=True))
    stored(2)
    assert incomplete() == [("Half", "upstream_unavailable")]


def test_an_aborted_answer_does_not_look_complete(site: str, key: str, upstream: OpenAIServer) -> None:
    upstream.always(behave.drip(0.2))
    with pytest.raises(httpx2.RemoteProtocolError):
        post(site, key)
    stored(1)
    assert incomplete() == [("Hello", "upstream_unavailable")]


@pytest.mark.parametrize(
    "garbage",
    [
        "garbage",
        "null",
        '{"choices": 7}',
        '{"choices": [null, {"message": 3}]}',
        '{"choices": [{"message": {"content": 1, "tool_calls": [1, {"function": 2}]}}]}',
        "[" * 50_000,
    ],
)
def test_an_invalid_answer_is_passed_on_but_not_stored(
    site: str, key: str, upstream: OpenAIServer, garbage: str
) -> None:
    upstream.always(behave.raw(garbage))
    named = {"Authorization": f"Bearer {key}", "X-User-Id": "ada", "X-Session-Id": "s1"}
    answer = httpx2.post(f"{site}/v1/chat/completions", json=HELLO, headers=named)
    assert (answer.status_code, answer.text) == (200, garbage)
    assert stored(1) == [("user", "Hello")]
    assert incomplete() == [("Hello", "unfinished")]


def test_row_12_characters_that_the_database_cannot_store_are_replaced(client: Client, upstream: OpenAIServer) -> None:
    upstream.queue(behave.content("a\0b\ud800c"), behave.streamed("\ud83d", "\ude00 half \ud83d"))
    ask(client(), "Hello")
    assert stored(2)[1] == ("assistant", "a\ufffdb\ufffdc")
    list(ask(client(), "And?", stream=True))
    assert stored(4)[3] == ("assistant", "\U0001f600 half \ufffd")


def test_a_very_long_answer_is_passed_on_completely_and_stored_shortened(
    client: Client, upstream: OpenAIServer
) -> None:
    upstream.always(behave.content("word " * 100_000))
    assert len(ask(client(), "Hello").choices[0].message.content) == 500_000
    assert 150_000 < len(stored(2)[1][1]) <= 200_000


def test_row_20_a_redirect_is_not_followed(site: str, key: str, upstream: OpenAIServer) -> None:
    with OpenAIServer() as elsewhere:
        upstream.queue(behave.raw("{}", 307), behave.error(302, {"Location": f"{elsewhere.base_url}/chat/completions"}))
        for _ in range(2):
            status, headers, answer = post(site, key)
            assert (status, answer["error"]["code"]) == (502, "upstream_redirects") and "Location" not in headers
        assert elsewhere.requests == []


def test_row_20_only_the_upstream_gets_its_key(
    site: str, key: str, upstream: OpenAIServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    seen: list[Any] = []

    def look(handler: behave.Handler, body: dict[str, Any]) -> None:
        seen.append(dict(handler.headers))
        handler.refuse(500, "test error")

    upstream.always(look)
    _, headers, answer = post(site, key)
    assert seen[0]["Authorization"] == "Bearer upstream-key"
    assert not {"X-User-Id", "X-Session-Id"} & {name.title() for name in seen[0]}
    assert key not in str(seen)
    stored(1)
    told = f"{headers}{answer}{capfd.readouterr()}{list(Message.objects.values())}"
    assert "upstream-key" not in told


# --- the caller ---


class Endless:
    """Streams until the connection is closed, and records that."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def __call__(self, handler: behave.Handler, body: dict[str, Any]) -> None:
        try:
            behave.streamed(*["word "] * 2_000, pause=0.05)(handler, body)
        except OSError:
            self.closed.set()


def test_the_received_answer_is_stored_if_the_caller_disconnects(client: Client, upstream: OpenAIServer) -> None:
    endless = Endless()
    upstream.always(endless)
    stream = ask(client(), "Hello", stream=True)
    for _ in range(5):
        next(stream)
    stream.close()
    assert endless.closed.wait(30)
    [_, (role, content)] = stored(2)
    assert role == "assistant"
    assert content.startswith("word word word ")
    assert incomplete() == [(content, "client_disconnected")]


def test_an_answer_is_complete_if_the_caller_disconnects_after_its_end(client: Client, upstream: OpenAIServer) -> None:
    def linger(handler: behave.Handler, body: dict[str, Any]) -> None:
        handler.say("stop")
        time.sleep(5)

    upstream.always(behave.streamed("All of it", end=linger))
    stream = ask(client(), "Hello", stream=True)
    for part in stream:
        if part.choices[0].finish_reason:
            break
    stream.close()
    assert stored(2)[1] == ("assistant", "All of it")
    assert incomplete() == []


def test_only_the_last_message_of_an_unanswered_history_is_marked(site: str, key: str, upstream: Any) -> None:
    upstream.always(behave.error(500))
    said = [{"role": role, "content": role.title()} for role in ("user", "assistant", "user")]
    post(site, key, {"messages": said})
    assert stored(3) == [("user", "User"), ("assistant", "Assistant"), ("user", "User")]
    assert incomplete() == [("User", "unfinished")]


@pytest.mark.slow
def test_a_message_is_stored_if_the_caller_disconnects_before_the_answer(
    site: str, key: str, upstream: OpenAIServer
) -> None:
    upstream.hold()
    named = {"Authorization": f"Bearer {key}", "X-User-Id": "ada", "X-Session-Id": "s1"}
    with closing(http.client.HTTPConnection(site.removeprefix("http://"))) as caller:
        caller.request("POST", "/v1/chat/completions", json.dumps(HELLO), named)
        upstream.wait_for_held(1)
    assert stored(1) == [("user", "Hello")]
    wait_until(lambda: incomplete() == [("Hello", "client_disconnected")])


@pytest.mark.slow
def test_the_web_server_relays_streams_and_stores_them_if_the_caller_disconnects(
    key: str, upstream: OpenAIServer
) -> None:
    endless = Endless()
    upstream.always(endless)
    named = {"X-User-Id": "ada", "X-Session-Id": "s1"}
    with (
        web(**environment(CHAT__UPSTREAM_BASE_URL=upstream.base_url)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key=key, default_headers=named) as chat,
    ):
        stream = ask(chat, "Hello", stream=True)
        for _ in range(5):
            next(stream)
        stream.close()
        assert endless.closed.wait(30)
        [_, (_, content)] = stored(2)
        assert incomplete() == [(content, "client_disconnected")]


# --- memory ---


def failures(what: str) -> float:
    return REGISTRY.get_sample_value("memory_chat_failures_total", {"what": what}) or 0


def test_a_call_continues_without_unavailable_memory(
    site: str, key: str, upstream: OpenAIServer, settings: Settings
) -> None:
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"max_tokens": 20})
    before = failures("load")
    status, headers, _ = post(site, key)
    assert (status, headers["X-Memory"]) == (200, "unavailable") and "X-Memory-Context" not in headers
    assert upstream.requests[0] == HELLO
    assert failures("load") == before + 1
    assert stored(2) == [("user", "Hello"), ("assistant", "Noted.")]
    assert "memory_chat_failures_total" in Api(key).client.get("/metrics", headers=Api(key).headers).content.decode()


def test_a_call_continues_without_slow_memory(
    site: str, key: str, upstream: OpenAIServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(site, key)
    stored(2)
    settings.CHAT = settings.CHAT.model_copy(update={"memory_timeout_seconds": 0.5})
    monkeypatch.setattr("moments_app.interfaces.chat.rounds.STORE_SECONDS", 0.5)
    with psycopg.connect(database_url()) as other:
        other.execute("LOCK TABLE sessions_app_session IN ACCESS EXCLUSIVE MODE")
        started = time.monotonic()
        status, headers, _ = post(site, key, {"messages": [{"role": "user", "content": "Again"}]})
        assert (status, headers["X-Memory"]) == (200, "unavailable")
        assert time.monotonic() - started < 10
    assert stored(4)[2:] == [("user", "Again"), ("assistant", "Noted.")]


def test_a_call_is_answered_without_a_database(
    site: str, key: str, upstream: OpenAIServer, capfd: pytest.CaptureFixture[str]
) -> None:
    post(site, key)
    stored(2)
    with database_away():
        status, headers, body = post(site, key, {"messages": [{"role": "user", "content": "SECRET-TEXT"}]})
        unknown, told, _ = post(site, "mem_000000000000_wrong")
    assert (status, headers["X-Memory"]) == (200, "unavailable")
    assert body["choices"][0]["message"]["content"] == "Noted."
    assert (unknown, told["Retry-After"]) == (503, "1")
    # Storing is retried for some seconds.
    assert stored(4)[2:] == [("user", "SECRET-TEXT"), ("assistant", "Noted.")]
    assert "SECRET-TEXT" not in str(capfd.readouterr())
