"""A model for the processes to talk to."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.conf import EmbeddingSettings
from moments_app.engines import embeddings
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


@pytest.fixture
def embeddings_server(settings: Settings) -> Iterator[OpenAIServer]:
    """Texts are embedded by this server, 64 numbers each, in batches of 10; a job that fails is due again at once."""
    embeddings._of_fixed_width.clear()
    with OpenAIServer() as server:
        settings.EMBEDDING = EmbeddingSettings(
            base_url=server.base_url,
            api_key=SecretStr("sk-marked-key"),
            model="test-embedder",
            dimensions=64,
            batch_size=10,
            timeout_seconds=5,
            query_timeout_seconds=1,
        )
        settings.ENGINE = settings.ENGINE.model_copy(update={"circuit_seconds": 0})
        settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0, "max_attempts": 3})
        yield server
