"""A list of content parts is stored in the same way over every interface that accepts messages."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from moments_app.interfaces.chat.errors import ChatError
from moments_app.interfaces.chat.request import read_request
from sessions_app.models import Message, UserProfile
from sessions_app.transcript.append import append
from tests.support.api import Api
from tests.support.exports import as_lines
from tests.support.extras import needs

pytestmark = pytest.mark.django_db(transaction=True)

PARTS: list[Any] = [
    {"type": "text", "text": "Look at this bowl."},
    {"type": "image_url", "image_url": {"url": "https://kiln.example/a.png"}},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 300_000}"}},
    {"type": "input_audio", "input_audio": {"data": "B" * 300_000, "format": "wav"}},
    {"type": "text", "text": ""},
    {"type": "text", "text": "What glaze is it?"},
]
Send = Callable[[Any], None]


@pytest.fixture(params=["rest", "chat", pytest.param("openai", marks=needs("importers")), "jsonl"])
def send(request: pytest.FixtureRequest, service: Api, tmp_path: Path) -> Send:
    """Send content as Ada over one of the interfaces."""

    def by_rest(content: Any) -> None:
        answer = service.post("sessions/s1/messages", user_id="ada", messages=[{"role": "user", "content": content}])
        assert answer.status_code == 201, answer.content

    def by_chat(content: Any) -> None:
        body = json.dumps({"messages": [{"role": "user", "content": content}]})
        append(UserProfile.objects.ensure("ada"), "s1", read_request(body.encode()).turns)

    def by_openai(content: Any) -> None:
        line = {"messages": [{"role": "user", "content": content}]}
        call_command("import_sessions", str(as_lines(tmp_path / "f", line)), user="ada")

    def by_jsonl(content: Any) -> None:
        line = {"user_id": "ada", "session_id": "s1", "role": "user", "content": content}
        call_command("import_sessions", str(as_lines(tmp_path / "f", line)))

    ways: dict[str, Send] = {"rest": by_rest, "chat": by_chat, "openai": by_openai, "jsonl": by_jsonl}
    return ways[request.param]


def test_text_parts_become_the_content_and_other_parts_are_stored_without_data(send: Send) -> None:
    send(PARTS)
    turn = Message.objects.get()
    assert turn.content == "Look at this bowl.\nWhat glaze is it?"
    assert turn.payload is not None
    linked, inline, sound = turn.payload["parts"]
    assert linked == PARTS[1]
    assert inline["image_url"]["url"].startswith("data:image/png;base64,AAA")
    assert len(json.dumps([inline, sound])) < 1_000


def test_text_parts_alone_are_joined_without_a_payload(send: Send) -> None:
    send([{"type": "text", "text": "Hello"}, "there"])
    turn = Message.objects.get()
    assert (turn.content, turn.payload) == ("Hello\nthere", None)


@pytest.mark.parametrize("levels", [40, 650])
def test_a_part_nested_too_deeply_is_rejected_with_the_reason(service: Api, levels: int) -> None:
    deep: Any = "x"
    for _ in range(levels):
        deep = [deep]
    message = {"role": "user", "content": [{"type": "image_url", "image_url": deep}]}
    answer = service.post("sessions/s1/messages", user_id="ada", messages=[message])
    assert answer.status_code == 400 and "nested deeper" in answer.json()["errors"][0]["detail"]
    with pytest.raises(ChatError, match="nested deeper"):
        read_request(json.dumps({"messages": [message]}).encode())


def test_parts_are_added_to_the_payload(service: Api) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://kiln.example/a.png"}}
    message = {"role": "tool", "content": [picture], "payload": {"tool_call_id": "c1"}}
    service.post("sessions/s1/messages", user_id="ada", messages=[message])
    assert Message.objects.get().payload == {"tool_call_id": "c1", "parts": [picture]}


def test_row_1_repeated_parts_are_known_and_other_parts_under_their_id_are_409(service: Api) -> None:
    first: dict[str, Any] = {"role": "user", "content": PARTS, "external_id": "a"}
    assert service.post("sessions/s1/messages", user_id="ada", messages=[first]).status_code == 201
    again = service.post("sessions/s1/messages", user_id="ada", messages=[first])
    assert (again.status_code, again.json()["messages"][0]["created"]) == (200, False)
    for other in (PARTS[:-1], PARTS[1:], [PARTS[0], *PARTS[2:]]):
        answer = service.post("sessions/s1/messages", user_id="ada", messages=[first | {"content": other}])
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (409, "external_id_taken")
    assert Message.objects.count() == 1
