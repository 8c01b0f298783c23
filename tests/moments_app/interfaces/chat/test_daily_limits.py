"""Limits a day at the door of the chat endpoint: what is refused is so before the model is asked."""

from typing import Any

import openai
import pytest

from sessions_app.models import ApiKey, Application, DailyUsage, Message, Session, UserProfile
from tests.support.chat import Client, ask, stored
from tests.support.daily_limits import limit, next_day, used
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made(key: str) -> ApiKey:
    """The key that clients call with."""
    return ApiKey.objects.get()


def refused(call: Any, *arguments: Any) -> openai.RateLimitError:
    with pytest.raises(openai.RateLimitError) as raised:
        call(*arguments)
    assert raised.value.code == "daily_limit"
    assert int(raised.value.response.headers["Retry-After"]) > 0
    return raised.value


def test_a_call_over_the_limit_reaches_no_model(client: Client, made: ApiKey, upstream: OpenAIServer) -> None:
    limit(made, requests=2)
    talking = client()
    ask(talking, "Hello")
    talking.models.list()
    assert "The limit key-requests is reached: 2 requests a day for this key." in str(refused(ask, talking, "Again"))
    assert "key-requests" in str(refused(talking.models.list))
    assert len(upstream.requests) == 1
    next_day()
    ask(talking, "Again")


def test_a_persons_limit_holds_for_that_person(client: Client, ada: UserProfile, upstream: OpenAIServer) -> None:
    limit(ada, requests=1)
    ask(client(), "Hello")
    assert "person-requests" in str(refused(ask, client(), "Again"))
    ask(client(user_id="bo"), "Hello")
    assert len(upstream.requests) == 2


def test_the_answer_tells_what_is_left(client: Client, made: ApiKey) -> None:
    limit(made.application, requests=5)
    answer = client().chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": "Hello"}]
    )
    assert answer.headers["RateLimit-Policy"] == '"application-requests";q=5;w=86400'
    assert answer.headers["RateLimit"].startswith('"application-requests";r=4;t=')


def test_a_message_that_fits_exactly_is_answered_and_a_byte_more_is_not(
    client: Client, ada: UserProfile, upstream: OpenAIServer
) -> None:
    limit(ada, stored_bytes=10)
    assert "person-stored-bytes" in str(refused(ask, client(), "eleven byte"))
    assert not Session.objects.exists()
    assert upstream.requests == []
    ask(client(), "ten bytes.")
    assert stored(2) == [("user", "ten bytes."), ("assistant", "Noted.")]  # an answer is kept, whatever its length
    assert "person-stored-bytes" in str(refused(ask, client(), "x"))
    assert used(ada).stored_bytes == sum(message.size for message in Message.objects.all()) > 10


def test_rounds_are_counted_for_key_person_and_application(client: Client, made: ApiKey) -> None:
    ask(client(), "Hello")
    stored(2)
    person, application = UserProfile.objects.get(), Application.objects.get()
    assert used(made) == used(person) == used(application)
    assert used(person).requests == 1
    assert used(person).stored_bytes == sum(message.size for message in Message.objects.all())
    assert DailyUsage.objects.count() == 3


def test_what_is_asked_of_the_model_behind_it_is_no_call_of_ours(client: Client, ada: UserProfile) -> None:
    limit(ada, model_calls=1)
    for _ in range(2):
        ask(client(), "Hello")
    assert used(ada).model_calls == 0
