"""The vector of a query, when texts are embedded: asked of the endpoint in a short time, before any transaction."""

import hashlib
from dataclasses import replace

import structlog
from django.conf import settings
from django.core.cache import cache
from django.db import connection

from moments_app.engines import embedding_model
from moments_app.engines.interface import EngineError
from moments_app.models import EmbeddingModel, EngineCall
from moments_app.recall.search import Question, Vector

KEPT_SECONDS = 300  # an application asks for the context and then searches for the same

logger = structlog.get_logger(__name__)


def with_vector(question: Question) -> Question:
    """The question with the vector of its text; without one when none can be had, and then it is *degraded*.

    Call it outside any transaction: it waits for the endpoint, at most `EMBEDDING__QUERY_TIMEOUT_SECONDS`.
    """
    if question.mode == "text" or not settings.EMBEDDING.is_on:
        return question
    model = EmbeddingModel.objects.active().first()
    return replace(question, vector=_vector(question.text, model)) if model else question


def _vector(text: str, model: EmbeddingModel) -> Vector | None:
    key = f"query:{model.pk}:{hashlib.sha256(text.encode()).hexdigest()}"
    numbers = cache.get(key) or _asked(text, model)
    if numbers is None:
        return None
    cache.set(key, numbers, KEPT_SECONDS)
    return Vector(model.pk, model.dimensions, numbers)


def _asked(text: str, model: EmbeddingModel) -> list[float] | None:
    caller = embedding_model(model.name, model.dimensions, timeout=settings.EMBEDDING.query_timeout_seconds)
    if EngineCall.objects.pause_of(caller.name):
        return None
    connection.close()  # none is held while the endpoint thinks
    try:
        [numbers] = caller.open(EngineCall.objects.keep).embed([text])
    except EngineError as error:
        logger.warning("query not embedded", kind=error.kind)
        return None
    found: list[float] = numbers
    return found
