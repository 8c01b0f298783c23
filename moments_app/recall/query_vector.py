"""The vector of a query, when texts are embedded: got from the endpoint in a short time, before any transaction."""

import hashlib
from dataclasses import replace

import structlog
from django.conf import settings
from django.core.cache import cache
from django.db import connection

from moments_app.engines import embedding_model
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.models import Circuit, EmbeddingModel, EngineCall
from moments_app.recall.request import RecallRequest, Vector
from sessions_app.limited_operators import unlimited

SECONDS = 2.0  # for the endpoint to embed a query; after that the search is by words alone
KEPT_SECONDS = 300  # an application asks for the context and then searches for the same

logger = structlog.get_logger(__name__)


def with_vector(request: RecallRequest) -> RecallRequest:
    """Return the request with the vector of its text; without one, *degraded*, when none can be had.

    Call it outside any transaction: it waits for the endpoint, at most `SECONDS`.
    """
    if request.mode == "text" or not settings.EMBEDDING.is_on:
        return request
    with unlimited():  # models, circuits and calls are the site's
        model = EmbeddingModel.objects.active().first()
        return replace(request, vector=_vector(request.text, model)) if model and model.is_served else request


def _vector(text: str, model: EmbeddingModel) -> Vector | None:
    key = f"query:{model.pk}:{hashlib.sha256(text.encode()).hexdigest()}"
    numbers = cache.get(key) or _embedded(text, model)
    if numbers is None:
        return None
    cache.set(key, numbers, KEPT_SECONDS)
    return Vector(model.pk, model.dimensions, numbers)


def _embedded(text: str, model: EmbeddingModel) -> list[float] | None:
    caller = embedding_model(model.recipe, timeout=SECONDS)
    if Circuit.objects.refuse_query(caller.name) or (not caller.is_free and EngineCall.objects.used_up()):
        return None
    connection.close()  # none is held while the endpoint thinks
    try:
        [numbers] = caller.open(record_call).embed([text], is_query=True)
    except EngineError as error:
        logger.warning("query not embedded", kind=error.kind)
        return None
    found: list[float] = numbers
    return found


def record_call(call: CallRecord) -> None:
    """Record a call that was made for a query, and count it in its circuit."""
    EngineCall.objects.keep(call)
    Circuit.objects.note(call, Circuit.Work.QUERY)
