"""Call the configured reranker to reorder the best results of a search, before the request's transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog
from django.conf import settings
from django.db import connection

from moments_app.engines.interface import EngineError
from moments_app.models import Circuit, EngineCall
from moments_app.recall.query_vector import record_call
from moments_app.recall.request import RecallRequest
from moments_app.recall.results import Result
from moments_app.recall.search import recall
from sessions_app.limited_operators import unlimited
from sessions_app.models import Session
from sessions_app.row_security import acting_for

MOST = 50  # results that are reordered
SECONDS = 2.0  # timeout of the reranker; after that, results keep their order

logger = structlog.get_logger(__name__)


def with_relevances(
    request: RecallRequest, user_id: str | None, *, application: int, agent_id: str = "", session_id: str = ""
) -> RecallRequest:
    """Return the request with the reranker's scores of its best results; unchanged if there is no reranker or it fails.

    Don't call it within a transaction: it waits for the reranker for up to `SECONDS`.

    Args:
        user_id: the person whose memory is searched; None for an unknown person.
        application: primary key of the application that names the person.
        agent_id: see `recall`.
        session_id: search as the agent of this session.
    """
    if not settings.RERANK.base_url:
        return request
    with acting_for(user_id, application=application) as user:
        if session_id and user:
            sessions = Session.objects.filter(user=user, session_id=session_id)
            agent_id = sessions.values_list("agent_id", flat=True).first() or ""
        found = recall(user, agent_id, request, most=MOST) if user else []
    if len(found) < 2:
        return request
    with unlimited():  # circuits and calls are global
        return replace(request, relevances=_relevances(request.text, found))


def _relevances(query: str, found: Sequence[Result]) -> Mapping[str, float]:
    from moments_app.engines.rerank import Reranker, reranker_name  # imports an HTTP client, if there is a reranker

    conf = settings.RERANK
    if Circuit.objects.refuse_query(reranker_name(conf.model)) or EngineCall.objects.used_up():
        return {}
    connection.close()  # to hold no connection while the reranker works
    reranker = Reranker(
        base_url=conf.base_url,
        api_key=conf.api_key.get_secret_value(),
        model=conf.model,
        timeout=SECONDS,
        record=record_call,
    )
    try:
        scores = reranker.scores(query, [result.content for result in found])
    except EngineError as error:
        logger.warning("results not reranked", kind=error.kind)
        return {}
    return {result.ref: score for result, score in zip(found, scores, strict=True)}
