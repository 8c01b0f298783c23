"""Get the vector of a query from the endpoint, with a short timeout and before any transaction."""

import hashlib
from dataclasses import replace

import structlog
from django.conf import settings
from django.core.cache import cache
from django.db import connection

from moments_app.engines import embedder_name, embedding_model
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.models import Circuit, EmbeddingModel, EngineCall
from moments_app.recall.request import RecallRequest, Vector
from sessions_app.database.sql import columns, first
from sessions_app.limited_operators import unlimited

SECONDS = 2.0  # timeout of the endpoint; after that, the search uses words only
KEPT_SECONDS = 300  # an application often requests the context and then searches for the same text

# Reads the model, and whether one of its circuits is open or has counted failures of queries.
_ACTIVE_SQL = """
SELECT {columns}, EXISTS (
    SELECT FROM moments_app_circuit circuit
    WHERE circuit.engine = %s || model.name
      AND (circuit.state = 'open' OR (circuit.work = 'query' AND circuit.failures > 0))
) FROM moments_app_embeddingmodel model WHERE model.is_active
"""

logger = structlog.get_logger(__name__)


def with_vector(request: RecallRequest) -> RecallRequest:
    """Return the request with the vector of its text, or unchanged (`degraded`) if no vector is available.

    Call it outside any transaction: it waits for the endpoint for up to `SECONDS`.
    """
    if request.mode == "text" or not settings.EMBEDDING.is_on:
        return request
    with unlimited():  # models, circuits and calls are global
        found = first(EmbeddingModel, _ACTIVE_SQL.format(columns=columns(EmbeddingModel, "model")), [embedder_name("")])
        if found is None or not found[0].is_served:
            return request
        model, [has_failed] = found
        return replace(request, vector=_vector(request.text, model, has_failed=has_failed))


def _vector(text: str, model: EmbeddingModel, *, has_failed: bool) -> Vector | None:
    key = f"query:{model.pk}:{hashlib.sha256(text.encode()).hexdigest()}"
    numbers = cache.get(key)
    if numbers is None and (numbers := _embedded(text, model, has_failed=has_failed)):
        cache.set(key, numbers, KEPT_SECONDS)
    return Vector(model.pk, model.dimensions, numbers) if numbers else None


def _embedded(text: str, model: EmbeddingModel, *, has_failed: bool) -> list[float] | None:
    caller = embedding_model(model.recipe, timeout=SECONDS)
    if has_failed and Circuit.objects.refuse_query(caller.name):
        return None
    if not caller.is_free and EngineCall.objects.used_up():
        return None

    def record(call: CallRecord) -> None:
        if has_failed or call.error_kind or not caller.is_free:  # any other call changes nothing
            record_call(call)

    connection.close()  # to hold no connection while the endpoint works
    try:
        [numbers] = caller.open(record).embed([text], is_query=True)
    except EngineError as error:
        logger.warning("query not embedded", kind=error.kind)
        return None
    found: list[float] = numbers
    return found


def record_call(call: CallRecord) -> None:
    """Record a call that was made for a query, and count it in its circuit."""
    EngineCall.objects.keep(call)
    Circuit.objects.note(call, Circuit.Work.QUERY)
