"""The chat endpoint, by OpenAI's own client against a site that serves."""

import time
from typing import Any

import pytest

from sessions_app.models import Message, Session, UserProfile
from tests.moments_app.chat.conftest import Client, transcript
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def stored(count: int, session_id: str = "s1", user_id: str = "ada") -> list[tuple[str, str]]:
    """The transcript as soon as it has so many turns: the answer doesn't wait for it to be stored."""
    deadline = time.monotonic() + 20
    while len(found := transcript(user_id, session_id)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def ask(client: Any, *messages: Any, **fields: Any) -> Any:
    said = [{"role": "user", "content": text} if isinstance(text, str) else text for text in messages]
    return client.chat.completions.create(model="test-model", messages=said, **fields)


def test_an_openai_client_that_is_pointed_here_has_memory(client: Client, upstream: OpenAIServer) -> None:
    UserProfile.objects.create(user_id="ada", summary="Ada restores kilns in Turin.")
    raw = client().chat.completions.with_raw_response.create(
        model="test-model", messages=[{"role": "user", "content": "What do I do?"}], seed=7
    )
    assert raw.parse().choices[0].message.content == "Noted."
    assert raw.headers["X-Memory"] == "applied"
    assert len(raw.headers["X-Memory-Context"]) == 36
    [sent] = upstream.requests
    memory, question = sent["messages"]
    assert memory["role"] == "system"
    assert "Ada restores kilns in Turin." in memory["content"]
    assert question == {"role": "user", "content": "What do I do?"}
    assert (sent["model"], sent["seed"]) == ("test-model", 7)
    assert stored(2) == [("user", "What do I do?"), ("assistant", "Noted.")]
    [session] = Session.objects.all()
    assert (session.source, session.agent_id, session.message_count) == ("chat", "default", 2)
    answer = Message.objects.get(role="assistant")
    assert answer.metadata == {"source": "chat", "model": "test-model", "finish_reason": "stop"}


def test_it_lists_the_upstreams_models(client: Client) -> None:
    assert [model.id for model in client().models.list()] == ["test-model"]


def test_a_client_without_history_gets_the_newest_turns(
    client: Client, upstream: OpenAIServer, ada: UserProfile
) -> None:
    talk(ada, 4)
    ask(client(), {"role": "system", "content": "Be brief."}, "And now?")
    sent = upstream.requests[0]["messages"]
    assert [message["role"] for message in sent] == ["system", "system", *["user", "assistant"] * 2, "user"]
    assert sent[1]["content"] == "Be brief."
    assert stored(6)[4:] == [("user", "And now?"), ("assistant", "Noted.")]
