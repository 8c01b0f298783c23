"""The chat endpoint's `/v1/responses`, used by OpenAI's client on a running site."""

import json
import urllib.request
from typing import Any

import openai
import pytest
from pytest_django.fixtures import Settings

from moments_app.interfaces.chat.protocols import RESPONSES, read_request
from moments_app.interfaces.chat.request import ChatSession
from moments_app.interfaces.chat.rounds import Round, replay_due
from sessions_app.models import ApiKey, Message, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.transcript.spool import Spool
from tests.support import openai_server as behave
from tests.support.chat import Client, stored, transcript
from tests.support.jobs import build
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk, turns

pytestmark = pytest.mark.django_db(transaction=True)

CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Turin"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "Rain"}


def ask(client: openai.OpenAI, *items: str | dict[str, Any], **fields: Any) -> Any:
    """Call with these items. A single text is the whole input."""
    listed: Any = [{"role": "user", "content": item} if isinstance(item, str) else item for item in items]
    given = items[0] if len(items) == 1 and isinstance(items[0], str) else listed
    return client.responses.create(model="test-model", input=given, **fields)


def test_an_openai_client_of_the_responses_api_has_memory(client: Client, upstream: OpenAIServer) -> None:
    UserProfile.objects.create(user_id="ada", summary="Ada restores kilns in Turin.")
    raw = client().responses.with_raw_response.create(
        model="test-model", input="What do I do?", instructions="Be kind."
    )
    assert raw.parse().output_text == "Noted."
    assert (raw.headers["X-Memory"], raw.headers["X-Memory-Stored"]) == ("applied", "stored")
    [sent] = upstream.requests
    memory, question = sent["input"]
    assert memory["role"] == "system" and "Ada restores kilns in Turin." in memory["content"]
    assert question == {"role": "user", "content": "What do I do?"}
    assert (sent["model"], sent["instructions"]) == ("test-model", "Be kind.")
    assert transcript() == [("user", "What do I do?"), ("assistant", "Noted.")]
    answer = Message.objects.get(role="assistant")
    context_id = raw.headers["X-Memory-Context"]
    assert answer.metadata == {
        "source": "chat",
        "model": "test-model",
        "finish_reason": "stop",
        "context_id": context_id,
    }


@pytest.mark.parametrize("stream", [True, False])
def test_a_response_is_identical_to_the_upstreams(site: str, key: str, upstream: OpenAIServer, stream: bool) -> None:
    upstream.always(behave.streamed("Grüße aus", " \U0001f600 Turin") if stream else behave.content("Grüße"))
    body = json.dumps({"model": "m", "stream": stream, "input": "Hi"}).encode()
    headers = {"Authorization": f"Bearer {key}", "X-User-Id": "ada", "X-Session-Id": "s1"}
    answers = []
    for base_url in (upstream.base_url, f"{site}/v1"):
        with urllib.request.urlopen(urllib.request.Request(f"{base_url}/responses", body, headers)) as answer:
            answers.append((answer.status, answer.headers["Content-Type"], answer.read()))
    assert answers[0] == answers[1]
    assert stored(2)[1][1] == ("Grüße aus \U0001f600 Turin" if stream else "Grüße")


def test_row_27_the_last_event_of_a_response_is_sent_after_the_round_is_stored(
    client: Client, upstream: OpenAIServer
) -> None:
    upstream.always(behave.streamed("Good ", "morning"))
    said = ""
    for event in ask(client(), "Hello", stream=True):
        if event.type == "response.output_text.delta":
            said += event.delta
        if event.type == "response.completed":
            assert transcript() == [("user", "Hello"), ("assistant", "Good morning")]
    assert said == "Good morning"


def test_an_aborted_response_is_stored_partially(client: Client, upstream: OpenAIServer) -> None:
    upstream.always(behave.streamed("Good ", "mor", end=behave.hang_up))
    with pytest.raises(openai.APIError):
        list(ask(client(), "Hello", stream=True))
    assert stored(2) == [("user", "Hello"), ("assistant", "Good mor")]
    assert "incomplete" in Message.objects.get(role="assistant").metadata


@pytest.mark.parametrize("stream", [True, False])
def test_tool_items_are_passed_on_and_a_repeated_conversation_is_stored_once(
    client: Client, upstream: OpenAIServer, stream: bool
) -> None:
    upstream.queue(behave.calls_tool("weather", '{"city": "Turin"}'))
    given = ask(client(), "Weather?", stream=stream)
    if stream:
        list(given)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    ask(client(), "Weather?", reasoning, CALL, RESULT)
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Noted."}]}
    ask(client(), "Weather?", reasoning, CALL, RESULT, said, "And now?")
    assert upstream.requests[1]["input"][1:] == [{"role": "user", "content": "Weather?"}, reasoning, CALL, RESULT]
    expected = [("user", "Weather?"), ("assistant", ""), ("tool", "Rain"), ("assistant", "Noted.")]
    assert transcript() == [*expected, ("user", "And now?"), ("assistant", "Noted.")]
    _question, called, result, *_ = Message.objects.turns().in_order()
    assert called.payload == {"tool_calls": [behave.call_of("weather", '{"city": "Turin"}')]}
    assert result.tool_name == "weather"


def test_a_blank_model_name_does_not_replace_the_known_one() -> None:
    answer = RESPONSES.answer()
    for event, model in (("response.created", "m"), ("response.completed", "")):
        answer.add({"type": event, "response": {"model": model, "output": []}})
    assert answer.model == "m"


def test_a_call_with_a_previous_response_gets_the_newest_turns(client: Client, upstream: OpenAIServer) -> None:
    first = ask(client(), "I restore kilns.")
    ask(client(), "And now?", previous_response_id=first.id, instructions="Be kind.")
    sent = upstream.requests[1]
    assert [item["role"] for item in sent["input"]] == ["system", "user", "assistant", "user"]
    assert "previous_response_id" not in sent
    ask(client(), RESULT, previous_response_id=first.id)
    assert upstream.requests[2]["input"][-1] == RESULT


def test_earlier_tool_calls_come_from_memory_as_items(client: Client, upstream: OpenAIServer) -> None:
    upstream.queue(behave.calls_tool("weather", '{"city": "Turin"}'))
    ask(client(), "Weather?")
    ask(client(), RESULT)
    assert transcript()[1:] == [("assistant", ""), ("tool", "Rain"), ("assistant", "Noted.")]
    ask(client(), "And tomorrow?")
    kinds = [item.get("type", item.get("role")) for item in upstream.requests[2]["input"]]
    assert kinds == ["system", "user", "function_call", "function_call_output", "assistant", "user"]
    assert upstream.requests[2]["input"][2] == CALL


def test_a_tool_call_comes_from_memory_before_the_result_that_the_client_sends(
    client: Client, upstream: OpenAIServer
) -> None:
    calls = [behave.call_of("weather", '{"city": "Turin"}', f"call_{number}") for number in (1, 2)]
    upstream.queue(lambda handler, body: handler.complete(None, message={"tool_calls": calls}))
    ask(client(), "Weather?")
    results = [RESULT, RESULT | {"call_id": "call_2"}]
    upstream.queue(behave.error(500))
    with pytest.raises(openai.InternalServerError):
        ask(client(), *results)
    for _ in range(2):  # the second call repeats the first
        ask(client(), *results)
    question = {"role": "user", "content": "Weather?"}
    for sent in upstream.requests[1:]:
        assert sent["input"][1:] == [question, CALL, CALL | {"call_id": "call_2"}, *results]
    expected = [("user", "Weather?"), ("assistant", ""), ("tool", "Rain"), ("tool", "Rain"), ("assistant", "Noted.")]
    assert transcript() == expected


@pytest.mark.parametrize("named", ["s2", {"id": "s2"}])
def test_conversation_is_the_session_and_user_the_person(client: Client, upstream: OpenAIServer, named: Any) -> None:
    ask(client("", ""), "Hello", conversation=named, user="ada")
    assert transcript("ada", "s2") == [("user", "Hello"), ("assistant", "Noted.")]
    assert "conversation" not in upstream.requests[0]
    ask(client("bo", "s3"), "Hello", conversation=named, user="ada")
    assert transcript("bo", "s3")


def test_items_before_the_checkpoint_are_not_sent(client: Client, upstream: OpenAIServer, ada: UserProfile) -> None:
    session = talk(ada, 40)
    build(session)
    items: list[Any] = [{"role": turn.role, "content": turn.content} for turn in turns(40)]
    raw = client().responses.with_raw_response.create(model="m", input=[*items, {"role": "user", "content": "Now?"}])
    replaced = int(raw.headers["X-Memory-Replaced"])
    assert 0 < replaced < 40
    assert len(upstream.requests[-1]["input"]) <= 40 - replaced + 3


def test_instructions_are_not_stored_and_images_are_passed_on(client: Client, upstream: OpenAIServer) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 50_000}
    message = {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, picture]}
    ask(client(), {"role": "developer", "content": "Be brief."}, message)
    assert upstream.requests[0]["input"][1:] == [{"role": "developer", "content": "Be brief."}, message]
    assert stored(2)[0] == ("user", "What is it?")
    assert len(json.dumps(Message.objects.get(role="user").payload)) < 5_000


@pytest.mark.parametrize(
    ("fields", "code", "told"),
    [
        ({"input": []}, "invalid_input", "input"),
        ({"input": 5}, "invalid_input", "input"),
        ({"input": ["Hello"]}, "invalid_input", "input[0]"),
        (
            {"input": [{"role": "user", "content": "Hi"}, {"role": "pope", "content": "Hi"}]},
            "invalid_message",
            "input[1]",
        ),
        ({"input": "nul \0"}, "invalid_message", "content"),
        ({"input": "Hi", "background": True}, "background", "background"),
        ({"input": "Hi", "conversation": "a/b"}, "invalid_conversation", "conversation"),
        ({"input": "Hi", "conversation": {"id": 5}}, "invalid_conversation", "conversation"),
        ({"input": "Hi", "conversation": {"name": "s2"}}, "invalid_conversation", "conversation"),
        ({"input": "Hi", "previous_response_id": "resp_1"}, "missing_session_id", "X-Session-Id"),
    ],
)
def test_errors_say_what_is_wrong_with_a_call(
    client: Client, upstream: OpenAIServer, fields: dict[str, Any], code: str, told: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client(session_id="").responses.create(model="m", **fields)
    assert refused.value.code == code
    assert told in refused.value.message
    assert upstream.requests == []


def test_a_response_without_memory_is_passed_on_and_stored(
    client: Client, upstream: OpenAIServer, settings: Settings
) -> None:
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"max_tokens": 20})
    raw = client().responses.with_raw_response.create(
        model="m", input="Hello", previous_response_id="resp_1", conversation="s1"
    )
    assert raw.headers["X-Memory"] == "unavailable"
    assert upstream.requests == [{"model": "m", "input": "Hello", "previous_response_id": "resp_1"}]
    assert stored(2) == [("user", "Hello"), ("assistant", "Noted.")]


def test_a_response_in_the_spool_is_stored_as_a_response(ada: UserProfile, spool_dir: None) -> None:
    said = Round(ChatSession("ada", "s1"), read_request(b'{"input": "Hello"}').turns, RESPONSES.name)
    file = Spool.create("ada", "s1", said.first_record(), application=DEFAULT)
    answer = json.dumps(behave.response_of("Noted."))
    for record in ({"status": 200}, {"part": answer}, {"incomplete": ""}):
        file.add(record)
    file.release()
    replay_due()
    assert transcript() == [("user", "Hello"), ("assistant", "Noted.")]


def test_row_9_a_user_key_acts_for_its_person_whatever_the_body_says(
    client: Client, upstream: OpenAIServer, ada: UserProfile, bo: UserProfile
) -> None:
    UserProfile.objects.filter(pk=bo.pk).update(summary="Bo hides a walnut.")
    own = ApiKey.objects.issue("phone", user=ada)[1]
    ask(client("", api_key=own), "Hello", user="bo")
    assert "walnut" not in json.dumps(upstream.requests)
    assert transcript("ada") and not transcript("bo")
    with pytest.raises(openai.NotFoundError):
        ask(client("bo", api_key=own), "Hello")
