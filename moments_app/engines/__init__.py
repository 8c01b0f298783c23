"""The engines that write memory text, and the embedder. The settings determine which engine processes use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings

from memoryproject.embeddings import INPUT_TYPES, Recipe, read_address
from moments_app.engines.interface import CallRecord, Engine

if TYPE_CHECKING:
    from moments_app.engines.embeddings import Embedder


EXTRACTIVE, EMBEDDED = "extractive", "embedded"
MAX_CONCURRENT_CALLS = 4  # maximum parallel embedding calls of a job
MAX_RESPONSE_BYTES = 1_000_000  # larger answers are rejected


def load() -> None:
    """Import the clients that the settings require, and compile patterns, so that no call waits for these."""
    for name in ("statements", "statements.named_people"):
        import_module(f"moments_app.engines.{name}").load()
    import_module("moments_app.engines.transport").tls()
    if settings.ENGINE.uses_model:
        import_module("moments_app.engines.model")
    if settings.EMBEDDING.is_on:
        import_module("moments_app.engines.embeddings")


@dataclass(frozen=True)
class EngineFactory:
    """Opens an engine or embedder whose calls are recorded."""

    name: str  # the engine's name in `CallRecord`
    # opens it; its argument is a function that receives the record of each call
    open: Callable[[Callable[[CallRecord], None]], Any]
    work: str = "text"  # `text` or `embedding`

    @property
    def is_model(self) -> bool:
        """False for the extractive engine, which makes no calls."""
        return not self.name.startswith(EXTRACTIVE)

    @property
    def is_free(self) -> bool:
        """True if calls have no daily limit and are recorded only if they fail."""
        return is_free(self.name)


def is_free(name: str) -> bool:
    return name.startswith((EXTRACTIVE, EMBEDDED))


def language_model(model: str, *, timeout: float | None = None) -> EngineFactory:
    return EngineFactory(engine_name(model), lambda record: engine_for(model, record=record, timeout=timeout))


def embedding_model(recipe: Recipe, *, timeout: float | None = None) -> EngineFactory:
    opened = partial(embedder_for, recipe, timeout=timeout)
    return EngineFactory(embedder_name(recipe.name), lambda record: opened(record=record), "embedding")


def embedder_name(model: str) -> str:
    """Return the name of the configured embedder with a model, e.g. `openai:text-embedding-3-small`."""
    return f"{EMBEDDED if settings.EMBEDDING.is_embedded else 'openai'}:{model}"


def engine_name(model: str) -> str:
    """Return the name of the configured engine in records of calls and moments, e.g. `openai:gpt-4.1-mini`."""
    return f"openai:{model}" if settings.ENGINE.uses_model else EXTRACTIVE


def engine_for(model: str, *, record: Callable[[CallRecord], None], timeout: float | None = None) -> Engine:
    """Return the configured engine.

    Args:
        timeout: Total seconds for one call. Defaults to `ENGINE__TIMEOUT_SECONDS`.
    """
    # Import lazily: without a model, the client isn't needed. With one, the extractive engine isn't.
    if not settings.ENGINE.uses_model:
        from moments_app.engines.extractive import ExtractiveEngine

        return ExtractiveEngine()
    from moments_app.engines.model import ModelEngine

    return ModelEngine(
        base_url=settings.ENGINE.base_url or None,
        api_key=settings.ENGINE.api_key.get_secret_value(),
        model=model,
        timeout=settings.ENGINE.timeout_seconds if timeout is None else timeout,
        max_response_bytes=MAX_RESPONSE_BYTES,
        record=record,
    )


def embedder_for(recipe: Recipe, *, record: Callable[[CallRecord], None], timeout: float | None = None) -> "Embedder":
    """Return the configured embedder, either an endpoint or the embedded server.

    Args:
        timeout: Total seconds for one batch. Defaults to `ENGINE__TIMEOUT_SECONDS`.
    """
    from moments_app.engines.embeddings import ANSWER_BYTES_A_NUMBER, Embedder

    is_embedded = settings.EMBEDDING.is_embedded
    if is_embedded and not recipe.input_types:  # the embedded server uses the field to prioritize queries
        recipe = recipe._replace(input_types=INPUT_TYPES)
    numbers_of_a_batch = settings.EMBEDDING.batch_size * recipe.dimensions
    return Embedder(
        base_url=read_address(settings.DATA_DIR) if is_embedded else settings.EMBEDDING.base_url or None,
        api_key=settings.EMBEDDING.api_key.get_secret_value(),
        recipe=recipe,
        name=embedder_name(recipe.name),
        timeout=settings.ENGINE.timeout_seconds if timeout is None else timeout,
        max_response_bytes=MAX_RESPONSE_BYTES + numbers_of_a_batch * ANSWER_BYTES_A_NUMBER,
        record=record,
        calls_at_once=1 if is_embedded else MAX_CONCURRENT_CALLS,
    )
