"""The site with a model behind it, and clients of the chat endpoint."""

from collections.abc import Iterator

import openai
import pytest

from sessions_app.models import ApiKey
from tests.support.chat import Client
from tests.support.live import live_site
from tests.support.openai_server import OpenAIServer


@pytest.fixture
def site(transactional_db: None, upstream: OpenAIServer) -> Iterator[str]:
    """The base URL of the site. At the end, all rounds are stored."""
    with live_site() as url:
        yield url


@pytest.fixture
def key(transactional_db: None) -> str:
    return ApiKey.objects.issue("application")[1]


@pytest.fixture
def client(site: str, key: str) -> Iterator[Client]:
    """Return a function that creates an OpenAI client for a person and a conversation, with additional `headers`."""
    made: list[openai.OpenAI] = []

    def make(user_id: str = "ada", session_id: str = "s1", api_key: str = key, **headers: str) -> openai.OpenAI:
        named = {"X-User-Id": user_id, "X-Session-Id": session_id} | headers
        named = {name: value for name, value in named.items() if value}
        made.append(openai.OpenAI(base_url=f"{site}/v1", api_key=api_key, default_headers=named, max_retries=0))
        return made[-1]

    yield make
    for one in made:
        one.close()
