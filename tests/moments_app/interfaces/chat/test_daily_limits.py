"""Daily limits of the chat endpoint: a call over the limit is refused before the model is called."""

from typing import Any

import openai
import pytest

from sessions_app.models import ApiKey, DailyUsage
from tests.support.chat import Client, ask, stored
from tests.support.daily_limits import limit, next_day, used
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made(key: str) -> ApiKey:
    """Return the key of the clients."""
    return ApiKey.objects.get()


def refused(call: Any, *arguments: Any) -> openai.RateLimitError:
    with pytest.raises(openai.RateLimitError) as raised:
        call(*arguments)
    assert raised.value.code == "daily_limit"
    assert int(raised.value.response.headers["Retry-After"]) > 0
    return raised.value


def test_a_call_over_the_limit_is_not_passed_on(client: Client, made: ApiKey, upstream: OpenAIServer) -> None:
    limit(made, requests=2)
    talking = client()
    ask(talking, "Hello")
    talking.models.list()
    assert "The daily limit key-requests is reached: 2 requests a day for this key." in str(
        refused(ask, talking, "Again")
    )
    assert "key-requests" in str(refused(talking.models.list))
    assert len(upstream.requests) == 1
    next_day()
    ask(talking, "Again")


def test_the_answer_has_the_remaining_limit(client: Client, made: ApiKey) -> None:
    limit(made.application, requests=5)
    answer = client().chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": "Hello"}]
    )
    assert answer.headers["RateLimit-Policy"] == '"application-requests";q=5;w=86400'
    assert answer.headers["RateLimit"].startswith('"application-requests";r=4;t=')


def test_rounds_count_for_the_key_and_the_application(client: Client, made: ApiKey) -> None:
    ask(client(), "Hello")
    stored(2)
    assert used(made) == used(made.application)
    assert used(made).requests == 1
    assert DailyUsage.objects.count() == 2


def test_calls_of_the_upstream_are_not_model_calls(client: Client, made: ApiKey) -> None:
    limit(made, model_calls=1)
    for _ in range(2):
        ask(client(), "Hello")
    assert used(made).model_calls == 0
