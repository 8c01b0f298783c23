"""The site with a model behind it, and clients of the chat endpoint."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.conf import ChatSettings
from moments_app.interfaces.chat import write_ahead
from sessions_app.models import ApiKey
from tests.support.chat import Client
from tests.support.live import live_site
from tests.support.openai_server import OpenAIServer, content


@pytest.fixture
def spool_dir(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spool rounds in a folder of the test, and replay them soon."""
    settings.SPOOL_DIR = tmp_path / "spool"
    monkeypatch.setattr(write_ahead, "EVERY_SECONDS", 0.2)
    monkeypatch.setattr(write_ahead, "QUIET_SECONDS", 0.2)


@pytest.fixture
def upstream(settings: Settings, spool_dir: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """The model, which answers "Noted." by default."""
    with OpenAIServer() as server:
        server.always(content("Noted."))
        settings.CHAT = ChatSettings(
            upstream_base_url=server.base_url,
            upstream_api_key=SecretStr("upstream-key"),
            memory_timeout_seconds=30,
        )
        monkeypatch.setattr("moments_app.interfaces.chat.write_ahead.STORE_SECONDS", 30)
        yield server


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
