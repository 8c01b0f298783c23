"""A model for the processes to talk to."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from tests.support.openai_server import OpenAIServer


@pytest.fixture
def model_server(settings: Settings) -> Iterator[OpenAIServer]:
    """The engine is a model behind this server, and a job that fails is due again at once."""
    with OpenAIServer() as server:
        settings.ENGINE = settings.ENGINE.model_copy(
            update={
                "provider": "openai",
                "base_url": server.base_url,
                "api_key": SecretStr("sk-marked-key"),
                "timeout_seconds": 5,
                "circuit_seconds": 0,
            }
        )
        settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0, "max_attempts": 3})
        yield server
