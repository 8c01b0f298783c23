"""The vector of a query, when texts are embedded: got from the endpoint in a short time, before any transaction."""

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
from sessions_app.limited_operators import unlimited
from sessions_app.rows import columns, first

SECONDS = 2.0  # for the endpoint to embed a query; after that the search is by words alone
KEPT_SECONDS = 300  # an application asks for the context and then searches for the same

# With the model, whether a circuit of it is open, or has counted failures of queries.
_ACTIVE_SQL = """
SELECT {columns}, EXISTS (
    SELECT FROM moments_app_circuit circuit
    WHERE circuit.engine = %s || model.name
      AND (circuit.state = 'open' OR (circuit.work = 'query' AND circuit.failures > 0))
) FROM moments_app_embeddingmodel model WHERE model.is_active
"""

logger = structlog.get_logger(__name__)


def with_vector(request: RecallRequest) -> RecallRequest:
    """Return the request with the vector of its text; without one, *degraded*, when none can be had.

    Call it outside any transaction: it waits for the endpoint, at most `SECONDS`.
    """
    if request.mode == "text" or not settings.EMBEDDING.is_on:
        return request
    with unlimited():  # models, circuits and calls are the site's
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
        if has_failed or call.error_kind or not caller.is_free:  # otherwise it changes nothing
            record_call(call)

    connection.close()  # none is held while the endpoint thinks
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
