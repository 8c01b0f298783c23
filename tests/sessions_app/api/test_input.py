"""Bad input gets a clear 400 and stores nothing; good input is stored exactly."""

from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moments_app.models.atom import content_hash
from sessions_app.models import Message, Session, UserProfile
from sessions_app.text.chat_messages import text_and_parts
from tests.support.api import Api
from tests.support.transcript import messages

pytestmark = pytest.mark.django_db(transaction=True)

good = {"role": "user", "content": "x"}
deep: Any = "x"
for _ in range(40):
    deep = [deep]


@pytest.mark.parametrize(
    ("change", "attr"),
    [
        ({"role": "robot"}, "messages.1.role"),
        ({"role": None}, "messages.1.role"),
        ({"content": 5}, "messages.1.content"),
        ({"content": {"type": "text", "text": "x"}}, "messages.1.content"),
        ({"content": ["x", 5]}, "messages.1.content"),
        ({"content": [{"text": "x"}]}, "messages.1.content"),
        ({"content": [{"type": "text", "text": 5}]}, "messages.1.content"),
        ({"content": ["x" * 100_000, "y" * 100_000]}, "messages.1.content"),
        ({"content": ["a\0b"]}, "messages.1.content"),
        ({"content": [{"type": "a", "b": "\ud800"}]}, "messages.1.content"),
        ({"content": [{"type": "a", "b": deep}]}, "messages.1.content"),
        ({"content": [{"type": "a", "b": "x" * 200_001}]}, "messages.1.content"),
        ({"content": [{"type": "a"}], "payload": [1]}, "messages.1.payload"),
        ({"content": [{"type": "a"}], "payload": {"parts": []}}, "messages.1.payload"),
        ({"content": None}, "messages.1.content"),
        ({"content": "a\0b"}, "messages.1.content"),
        ({"content": "a\ud800b"}, "messages.1.content"),
        ({"content": "x" * 200_001}, "messages.1.content"),
        ({"tool_name": "x" * 256}, "messages.1.tool_name"),
        ({"external_id": ""}, "messages.1.external_id"),
        ({"external_id": "x" * 256}, "messages.1.external_id"),
        ({"created_at": "2026-03-02T08:00:00"}, "messages.1.created_at"),
        ({"created_at": "1969-12-31T23:59:59Z"}, "messages.1.created_at"),
        ({"created_at": "2101-01-01T00:00:00Z"}, "messages.1.created_at"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "messages.1.created_at"),
        ({"created_at": "9999-12-31T23:59:59-14:00"}, "messages.1.created_at"),
        ({"created_at": "yesterday"}, "messages.1.created_at"),
        ({"payload": deep}, "messages.1.payload"),
        ({"payload": {"a\0": 1}}, "messages.1.payload"),
        ({"payload": ["\udfff"]}, "messages.1.payload"),
        ({"payload": ["x" * 200_001]}, "messages.1.payload"),
        ({"metadata": [1]}, "messages.1.metadata"),
        ({"metadata": {"a": {"b": "\0"}}}, "messages.1.metadata"),
        ({"kind": "partition"}, "messages.1.kind"),
        ({"sequence": 4}, "messages.1.sequence"),
        ({"surprise": 1}, "messages.1.surprise"),
    ],
)
def test_a_bad_message_is_named_and_its_batch_is_not_stored(service: Api, change: Any, attr: str) -> None:
    answer = service.post("sessions/s1/messages", user_id="ada", messages=[good, good | change])
    assert answer.status_code == 400
    body = answer.json()
    assert body["type"] == "validation_error"
    assert [error["attr"] for error in body["errors"]] == [attr]
    assert not Message.objects.exists()
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        "text",
        None,
        {"user_id": "ada"},
        {"user_id": "ada", "messages": []},
        {"user_id": "ada", "messages": {}},
        {"user_id": "ada", "messages": [None]},
        {"user_id": "ada", "messages": ["x"]},
        {"user_id": "ada", "messages": messages(501)},
        {"user_id": "ada", "messages": messages(1), "more": 1},
        {"user_id": "", "messages": messages(1)},
        {"user_id": "a/b", "messages": messages(1)},
        {"user_id": "..", "messages": messages(1)},
        {"user_id": "x" * 256, "messages": messages(1)},
        {"user_id": "a\0", "messages": messages(1)},
        {"user_id": 7, "messages": messages(1)},
        {"user_id": "ada", "messages": messages(1), "agent_id": "a\ud800"},
    ],
)
def test_a_bad_body_is_400_and_stores_nothing(service: Api, body: Any) -> None:
    answer = service.post("sessions/s1/messages", body)
    assert answer.status_code == 400, answer.content
    assert {"code", "detail", "attr"} == set(answer.json()["errors"][0])
    assert not UserProfile.objects.exists()


def test_an_unknown_field_is_named_even_if_its_name_cannot_be_encoded(service: Api) -> None:
    service.post("sessions/s1/messages", user_id="ada", messages=[good])
    for path in ("sessions/s1", "users/ada"):
        answer = service.patch(path, user_id="ada", **{"a\ud800b": 1})
        assert answer.status_code == 400
        assert "a\\ud800b" in [error["attr"] for error in answer.json()["errors"]]


def test_a_url_with_thousands_of_parameters_is_400(service: Api) -> None:
    answer = service.get("sessions", user_id="ada", **{f"field_{number}": "x" for number in range(2_000)})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["detail"] == "The URL has too many query parameters."


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("entities", {"kind": "a\ud800b", "title": "Order clay"}),
        ("memory/search", {"query": "clay", "mode": "a\ud800b"}),
        ("memory/context", {"session_id": "s1", "layers": "user,a\ud800b"}),
    ],
)
def test_an_invalid_choice_is_named_even_if_it_cannot_be_encoded(
    service: Api, path: str, fields: dict[str, Any]
) -> None:
    service.post("sessions/s1/messages", user_id="ada", messages=[good])
    answer = service.post(path, user_id="ada", **fields)
    assert answer.status_code == 400
    assert "a\\ud800b" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nan",
        b'{"user_id": Infinity}',
        b'{"user_id": NaN}',
        b'{"user_id": 1e400}',
        b'{"user_id": "ada", "\\udc80": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 5000,
        b'"\\ud800"',
    ],
)
def test_invalid_json_is_400(service: Api, raw: bytes) -> None:
    answer = service.client.post(
        "/api/v1/sessions/s1/messages", raw, content_type="application/json", headers=service.headers
    )
    assert answer.status_code == 400, answer.content
    assert "errors" in answer.json()


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_another_content_type_is_415(service: Api, content_type: str) -> None:
    answer = service.client.post("/api/v1/sessions", b"x=1", content_type=content_type, headers=service.headers)
    assert answer.status_code == 415


def test_a_body_over_the_limit_is_413_with_the_limit(service: Api, settings: Any) -> None:
    settings.API_MAX_BODY_BYTES = 1000
    answer = service.post("sessions/s1/messages", user_id="ada", messages=[good | {"content": "x" * 1000}])
    assert answer.status_code == 413
    assert "1000" in answer.json()["errors"][0]["detail"]


def test_a_body_without_a_length_is_411(service: Api) -> None:
    answer = service.client.post(
        "/api/v1/sessions",
        b"",
        content_type="application/json",
        headers={**service.headers, "Transfer-Encoding": "chunked"},
    )
    assert answer.status_code == 411


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("sessions", {"limit": 0}),
        ("sessions", {"limit": 201}),
        ("sessions", {"limit": "x"}),
        ("sessions", {"offset": -1}),
        ("sessions", {"colour": "red"}),
        ("sessions/s1/messages", {"view": "some"}),
        ("sessions/s1/messages", {"view": "live", "after": 3}),
        ("sessions/s1/messages", {"view": "all", "after": 3, "before": 9}),
        ("sessions/s1/messages", {"view": "all", "limit": 201}),
        ("sessions/s1/messages", {"view": "all", "after": 10**30}),
        ("moments", {"since": "2026-01-01"}),
        ("moments", {"text": "a\0"}),
        ("moments/k/chain", {"depth": 0}),
        ("jobs", {"status": "lost"}),
    ],
)
def test_a_bad_query_is_400(service: Api, path: str, query: dict[str, Any]) -> None:
    answer = service.get(path, user_id="ada", **query)
    assert answer.status_code == 400, answer.content
    assert answer.json()["errors"][0]["attr"] in query


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "sessions/a/b/c",
        "sessions/%00",
        "jobs/7",
        "moments/%00",
        "sessions/%ff%fe",
        "users/",
    ],
)
def test_an_unknown_url_is_404_in_the_common_error_shape(service: Api, path: str) -> None:
    answer = service.get(path, **({} if path.startswith("users") else {"user_id": "ada"}))
    assert answer.status_code == 404
    assert answer.json()["errors"][0]["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "attr"),
    [
        ("post", "sessions/{}/messages", "session_id"),
        ("get", "sessions/{}", "session_id"),
        ("delete", "sessions/{}", "session_id"),
        ("post", "sessions/{}/compact", "session_id"),
        ("patch", "users/{}", "user_id"),
        ("get", "moments/{}/chain", "key"),
        ("get", "prompts/{}", "name"),
    ],
)
def test_an_id_in_a_url_that_is_too_long_is_400_with_the_limit(
    service: Api, ada: UserProfile, method: str, path: str, attr: str
) -> None:
    named = {} if path.startswith(("users", "prompts")) else {"user_id": "ada"}
    body = {"messages": [good]} if path.endswith("messages") else {}
    answer = getattr(service, method)(path.format("é" * 256), **named, **body)
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["code"], error["attr"]) == (400, "max_length", attr)
    assert "255" in error["detail"]
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [{"timezone": "Mars/Base"}, {"summary": "x" * 20_001}, {"interests": [""]}, {"interests": "a"}, {"user_id": "b"}],
)
def test_a_bad_profile_is_400(service: Api, ada: UserProfile, fields: dict[str, Any]) -> None:
    assert service.patch("users/ada", **fields).status_code == 400


# --- row 12: arbitrary values in every field ---

texts = st.text(max_size=300) | st.sampled_from(
    [
        "\0",
        "\ud800",
        "\u202e bidi \u2066",
        "a" * 70_000,
        "\ufeff",
        "e\u0301",
        "  spaced  ",
        "\r\n\t",
        "\x7f\x1b[31m",
        "👩‍👩‍👧",
        "％",
    ]
)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
contents = st.lists(
    texts | st.fixed_dictionaries({"type": texts}, optional={"text": texts, "image_url": jsons}), max_size=4
)
times = st.datetimes().map(str) | st.datetimes(timezones=st.timezones()).map(lambda t: t.isoformat()) | texts
fuzzed = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": texts | contents | jsons},
    optional={
        "tool_name": texts,
        "payload": jsons,
        "metadata": st.dictionaries(texts, jsons, max_size=3) | jsons,
        "external_id": texts,
        "created_at": times,
    },
)
fuzzing = hypothesis_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def as_json_numbers(value: Any) -> Any:
    """Convert all numbers to float: JSON has one number type, and 1e+23 may be returned with all its digits."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [as_json_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json_numbers(item) for key, item in value.items()}
    return float(value)


@pytest.mark.slow
@fuzzing
@given(message=fuzzed)
@example(message={"role": "user", "content": "", "payload": {"": [-0.0, 1e308, 5e-324, 10**300]}})
def test_row_12_a_message_is_rejected_or_returned_unchanged(service: Api, message: dict[str, Any]) -> None:
    answer = service.post("sessions/fuzz/messages", user_id="ada", messages=[message])
    assert answer.status_code in (200, 201, 400, 409), answer.content
    if answer.status_code == 409:  # an earlier example had the same id and another text
        assert Message.objects.filter(external_id=message["external_id"]).exists()
    if answer.status_code >= 400:
        return
    placed = answer.json()["messages"][0]
    stored = service.get("sessions/fuzz/messages", user_id="ada", view="all", after=placed["sequence"] - 1, limit=1)
    [read] = stored.json()["messages"]
    if not placed["created"]:
        return  # a known external id: the first message is kept
    for name in ("role", "tool_name", "external_id"):
        assert read[name] == message.get(name, "" if name != "external_id" else None)
    text, parts = text_and_parts(message["content"])
    payload = (message.get("payload") or {}) | {"parts": parts} if parts else message.get("payload")
    assert (read["content"], as_json_numbers(read["payload"])) == (text, as_json_numbers(payload))
    assert as_json_numbers(read["metadata"]) == as_json_numbers(message.get("metadata", {}))


@pytest.mark.slow
@fuzzing
@given(session_id=texts, agent_id=texts, title=texts, metadata=jsons)
def test_row_12_a_session_is_rejected_or_returned_unchanged(
    service: Api, session_id: str, agent_id: str, title: str, metadata: Any
) -> None:
    sent = {"session_id": session_id, "agent_id": agent_id, "title": title, "metadata": metadata}
    answer = service.post("sessions", user_id="ada", **sent)
    assert answer.status_code in (200, 201, 400), answer.content
    if answer.status_code == 201:
        read = answer.json()
        assert as_json_numbers({name: read[name] for name in sent}) == as_json_numbers(sent)


@pytest.mark.slow
@fuzzing
@given(user_id=texts, session_id=texts)
def test_row_12_any_text_in_a_url_gets_a_response(service: Api, user_id: str, session_id: str) -> None:
    assert service.get("sessions", user_id=user_id.encode(errors="replace")).status_code in (200, 400)
    path = session_id.encode(errors="replace").decode()
    response = Client(raise_request_exception=False).get(
        "/api/v1/sessions/" + path.replace("?", "").replace("#", "").replace("\n", "").replace("\r", ""),
        query_params={"user_id": "ada"},
        headers=service.headers,
    )
    assert response.status_code in (200, 301, 400, 404)


@pytest.mark.slow
@fuzzing
@given(
    profile=st.fixed_dictionaries(
        {}, optional={"summary": texts, "interests": st.lists(texts, max_size=3), "metadata": jsons}
    )
)
def test_row_12_a_profile_is_rejected_or_returned_unchanged(
    service: Api, ada: UserProfile, profile: dict[str, Any]
) -> None:
    answer = service.patch("users/ada", **profile)
    assert answer.status_code in (200, 400), answer.content
    if answer.status_code == 200:
        read = service.get("users/ada").json()
        if not profile.get("summary", "x").strip():
            assert read["summary"] == profile.pop("summary").strip()
        if "interests" in profile:  # interests with the same words are merged
            assert set(read["interests"]) <= {text.strip() for text in profile["interests"]}
            assert hashes(read["interests"]) == hashes(profile.pop("interests"))
        assert as_json_numbers({name: read[name] for name in profile}) == as_json_numbers(profile)


def hashes(texts: list[str]) -> set[str]:
    """Return the hashes of the words of the texts that aren't blank."""
    return {content_hash(text) for text in texts if text.strip()}
