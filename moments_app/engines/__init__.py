"""The engines that write memory text, and the embedder. Settings say which engine is at work; processes don't know."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from moments_app.engines.interface import CallRecord, Engine

if TYPE_CHECKING:
    from moments_app.engines.interface import TextEmbedder


EXTRACTIVE, LOCAL = "extractive", "local"
CALLS_AT_ONCE = 4  # calls for vectors that a job has under way
MAX_RESPONSE_BYTES = 1_000_000  # of an answer to a call; larger ones are refused


def load() -> None:
    """Import the client of models, and load a local model, so that no call waits for it, where settings name one.

    Raises:
        ImproperlyConfigured: the local model can't be used.
    """
    if settings.ENGINE.uses_model or settings.EMBEDDING.has_endpoint:
        import_module("openai")
    if settings.EMBEDDING.is_local:
        _try_local_model()


def _try_local_model() -> None:
    from moments_app.engines.interface import EngineError

    conf = settings.EMBEDDING
    try:
        _local_embedder(conf.model, conf.dimensions).embed(["Hello."])
    except EngineError as error:
        told = f"EMBEDDING__MODEL_FOLDER, EMBEDDING__DIMENSIONS: {error}"
        raise ImproperlyConfigured(told) from error


@dataclass(frozen=True)
class Caller:
    """An engine or embedder that can be opened, and the name under which its calls are recorded.

    Args:
        name: as in `CallRecord.engine`.
        open: returns the engine; takes the function that is called with the record of each call.
        work: what is asked of it, `text` or `embedding`.
    """

    name: str
    open: Callable[[Callable[[CallRecord], None]], Any]
    work: str = "text"

    @property
    def is_model(self) -> bool:
        """False for what works in this process, waits for nobody and costs nothing."""
        return not self.name.startswith((EXTRACTIVE, LOCAL))


def language_model(model: str, *, timeout: float | None = None) -> Caller:
    """Return the engine in use, with the model set for a process; see `engine_for`."""
    return Caller(engine_name(model), lambda record: engine_for(model, record=record, timeout=timeout))


def embedding_model(model: str, dimensions: int, *, timeout: float | None = None) -> Caller:
    """Return the embedder of the settings, with a model; see `embedder_for`."""
    opened = partial(embedder_for, model, dimensions, timeout=timeout)
    return Caller(embedder_name(model), lambda record: opened(record=record), "embedding")


def embedder_name(model: str) -> str:
    """Return the name of the embedder of the settings with a model, e.g. `openai:text-embedding-3-small`."""
    return f"{LOCAL if settings.EMBEDDING.is_local else 'openai'}:{model}"


def engine_name(model: str) -> str:
    """Return the name under which calls and moments of the engine in use are recorded, e.g. `openai:gpt-4.1-mini`."""
    return f"openai:{model}" if settings.ENGINE.uses_model else EXTRACTIVE


def engine_for(model: str, *, record: Callable[[CallRecord], None], timeout: float | None = None) -> Engine:
    """Return the engine in use.

    Args:
        model: the model set for the process, where a model is used at all.
        record: called once for each call of a model.
        timeout: seconds for one call in all; None is `ENGINE__TIMEOUT_SECONDS`.
    """
    # Imported where used: a worker without a model needs no client, one with a model no keyphrase extractor.
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


def embedder_for(
    model: str, dimensions: int, *, record: Callable[[CallRecord], None], timeout: float | None = None
) -> "TextEmbedder":
    """Return the embedder of the settings: at their endpoint, or with their local model.

    Args:
        model: its name there.
        dimensions: numbers of a vector.
        record: called once for each call of an endpoint.
        timeout: seconds for one batch in all; None is `ENGINE__TIMEOUT_SECONDS`.
    """
    if settings.EMBEDDING.is_local:
        return _local_embedder(model, dimensions)
    from moments_app.engines.embeddings import ANSWER_BYTES_A_NUMBER, Embedder

    numbers_of_a_batch = settings.EMBEDDING.batch_size * dimensions
    return Embedder(
        base_url=settings.EMBEDDING.base_url or None,
        api_key=settings.EMBEDDING.api_key.get_secret_value(),
        model=model,
        dimensions=dimensions,
        timeout=settings.ENGINE.timeout_seconds if timeout is None else timeout,
        max_response_bytes=MAX_RESPONSE_BYTES + numbers_of_a_batch * ANSWER_BYTES_A_NUMBER,
        record=record,
        calls_at_once=CALLS_AT_ONCE,
    )


def _local_embedder(model: str, dimensions: int) -> "TextEmbedder":
    from moments_app.engines.local import LocalEmbedder

    conf = settings.EMBEDDING
    return LocalEmbedder(folder=Path(conf.model_folder), folder_has=conf.model, model=model, dimensions=dimensions)
