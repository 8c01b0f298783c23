"""Prepare a search of memory for a message: the query text, its vector, and the reranker's scores of the best results.

The engine, the embeddings endpoint and the reranker are called before the request's transaction. If a call fails or
times out, the message itself is the query, the search uses words only, or the results are not reordered.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import structlog
from django.conf import settings
from django.core.cache import cache
from django.db import connection

from moments_app.engines import embedder_name, embedding_model, language_model
from moments_app.engines.calls.texts import QueryRequest
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.engines.statements.named_people import FEW_WORDS, RELATIONSHIP_OF, any_relationship
from moments_app.engines.transcript import Turn
from moments_app.models import (
    Circuit,
    EmbeddingModel,
    EngineCall,
    KnownPerson,
    MemoryAtom,
    PromptResource,
    PromptVersion,
)
from moments_app.prompts import RECALL_QUERY_URI
from moments_app.recall.request import RecallRequest, Vector
from moments_app.recall.results import Result
from moments_app.recall.search import recall
from moments_app.turns.engine_input import engine_turn
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.database.sql import columns, read_first
from sessions_app.limited_operators import unlimited
from sessions_app.models import Message, Session, UserProfile
from sessions_app.row_security import acting_for

RETRIEVAL = ("query", "relevant", "auto", "off")
MAX_TURNS = 10  # maximum latest turns to send to the engine
MAX_TURN_TOKENS = 300  # maximum tokens per turn
# Timeout of each endpoint. After that, the message itself is the query, the search uses words only, and the results are
# not reordered.
TIMEOUT = 2.0

CACHE_SECONDS = 300  # applications often request a context and then search for the same text

# Reads the model, and whether one of the model's circuits is open or has counted failed queries.
_ACTIVE_SQL = """
SELECT {columns}, EXISTS (
    SELECT FROM moments_app_circuit circuit
    WHERE circuit.engine = %s || model.name
      AND (circuit.state = 'open' OR (circuit.work = 'query' AND circuit.failures > 0))
) FROM moments_app_embeddingmodel model WHERE model.is_active
"""
MAX_RELATED = 50  # maximum known people to read
MAX_NAMES = 3  # maximum names to add after a relationship
MAX_RERANKED = 50  # maximum results to rerank

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EngineInput:
    turns: list[Turn] = field(default_factory=list)
    prompt: PromptVersion | None = None


def recall_request_for(
    user_id: str | None, session_id: str, message: str, *, application: int, retrieval: str
) -> RecallRequest | None:
    """Return the search to run for a message, or None if no search is needed.

    Args:
        user_id: None for an unknown person.
        application: primary key of the person's application.
        retrieval: `query` uses the message as the query. `relevant` does the same, but requires a result that fits it.
            `auto` lets an engine write the query. `off` disables the search.
    """
    if retrieval == "off" or not message.strip():
        return None
    text = _query(user_id, application, session_id, message) if retrieval == "auto" else message
    if not text.strip():
        return None
    text = with_names(text, user_id, application=application)
    request = RecallRequest(text, must_fit=retrieval == "relevant")
    return with_relevances(with_vector(request), user_id, application=application, session_id=session_id)


def _query(user_id: str | None, application: int, session_id: str, message: str) -> str:
    """Return the query that the engine writes for the message, or the message itself if the engine writes none."""
    factory = language_model(settings.ENGINE.model_for_speed, timeout=TIMEOUT)
    with unlimited():  # circuits and calls are global
        is_refused = Circuit.objects.refuse_query(factory.name) or EngineCall.objects.reached_limit()
    with acting_for(user_id, application=application) as user:
        read = _engine_input(user, session_id) if user else EngineInput()
    if not read.turns or read.prompt is None or is_refused:
        return message
    connection.close()  # release the connection during the call
    prompt = read.prompt

    def record(call: CallRecord) -> None:
        with unlimited():
            EngineCall.objects.record(call, prompt_version=prompt)
            Circuit.objects.record(call, Circuit.Work.QUERY)
        connection.close()

    try:
        answer: Any = factory.open(record).recall_query(QueryRequest(read.turns, message, prompt.content))
    except EngineError as error:
        logger.warning("no query from the engine", kind=error.kind)
        return message
    query: str = answer.query
    return query


def _engine_input(user: UserProfile, session_id: str) -> EngineInput:
    turns = (
        Message.objects.turns().unretracted().for_user(user).filter(session__session_id=session_id, session__user=user)
    )
    latest = turns.exclude(role=Message.Role.SYSTEM).order_by("-sequence")[:MAX_TURNS]
    turns_read = drop_platform_text(list(latest)[::-1])
    prompts = PromptResource.objects.for_application(RECALL_QUERY_URI, user.application_id)
    resource = prompts.filter(active_version__isnull=False).select_related("active_version").first()
    shown = [engine_turn(turn, MAX_TURN_TOKENS, user.zone, index=turn.sequence) for turn in turns_read]
    return EngineInput(shown, resource.active_version if resource else None)


# --- relationships in a query, such as "my husband's birthday" ---

_MAY_BE = {
    "partner": frozenset({"husband", "wife", "boyfriend", "girlfriend", "fiancé", "fiancée"}),
    "child": frozenset({"son", "daughter"}),
}
# Possessives of the first person, by language.
_OWN = {
    "en": r"(?:my|our) ",
    "de": r"(?:mein|unser)(?:e[mnrs]?)? ",
    "es": r"(?:mis?|nuestr[ao]s?) ",
    "fr": r"(?:mon|ma|mes|notre|nos) ",
    "ru": r"(?:мо[йяёеию]|моего|моему|моей|моих|моим|моими|наш\w{0,3}) ",
    "zh": "我(?:们)?的?",
}
_ENDINGS = {"ru": "[а-яё]{0,3}", "zh": ""}  # in other languages, the plural's "s"
_OWNER = r"(?P<owner>[A-ZÀ-Þ][\w-]{0,40})['’]s "
MAX_MENTIONS = 5  # maximum relationships to read in a query


class Mention(NamedTuple):
    """A relationship in a query."""

    relationships: frozenset[str]  # the possible relationships of the word, in English
    end: int  # the index after the word
    owner: str  # the name before "'s", as in "Nora's son"; blank for "my son"


def _mention_pattern(language: str) -> re.Pattern[str]:
    whose = f"(?:(?i:{_OWN[language]})|{_OWNER})" if language == "en" else f"(?i:{_OWN[language]})"
    start, few, end = ("", "", "") if language == "zh" else (r"(?<!\w)", FEW_WORDS, r"\b")
    return re.compile(
        f"{start}{whose}{few}(?i:(?P<word>{any_relationship(language)}){_ENDINGS.get(language, 's?')}){end}"
    )


_MENTIONS = [_mention_pattern(language) for language in _OWN]


def relationships_in(query: str) -> list[Mention]:
    """Return the relationships that a query mentions: those to its author or to a named person, in order."""
    found = [
        Mention(_possible(relationship), match.end(), match.groupdict().get("owner") or "")
        for pattern in _MENTIONS
        for match in pattern.finditer(query)
        if (relationship := RELATIONSHIP_OF.get(match["word"].casefold()))
    ]
    return sorted(found, key=lambda mention: mention.end)[:MAX_MENTIONS]


def _possible(relationship: str) -> frozenset[str]:
    broader = {name for name, narrower in _MAY_BE.items() if relationship in narrower}
    return frozenset({relationship, *_MAY_BE.get(relationship, ()), *broader})


# --- the names of known people ---


def with_names(query: str, user_id: str | None, *, application: int) -> str:
    """Return a query with the names of known people after their relationships: "my sister (Anna)".

    Texts usually contain the name, but often lack the relationship.
    """
    if not (mentions := relationships_in(query)):
        return query
    with acting_for(user_id, application=application) as user:
        return _with_names(query, mentions, user) if user else query


def _with_names(query: str, mentions: Sequence[Mention], user: UserProfile) -> str:
    wanted = frozenset[str]().union(*(one.relationships for one in mentions))
    related = KnownPerson.objects.filter(user=user, relationship__in=wanted).newest_first()
    found = list(related.values_list("name", "relationship")[:MAX_RELATED])
    has_owner = any(one.owner for one in mentions)
    own_names = MemoryAtom.objects.names_of_user(user.pk) if found and has_owner else ()
    text, added = "", 0
    for one in mentions:
        text, added = text + query[added : one.end], one.end
        names = [name for name, relationship in found if relationship in one.relationships]
        names = [name for name in names[:MAX_NAMES] if name not in query and name not in text]
        if names and (not one.owner or one.owner in own_names):
            text += f" ({', '.join(names)})"
    return text + query[added:]


# --- the vector ---


def with_vector(request: RecallRequest) -> RecallRequest:
    """Return the request with the vector of its text, or the unchanged request if no vector is available.

    Don't call it within a transaction, because it waits up to `TIMEOUT` for the endpoint.
    """
    if request.mode == "text" or not settings.EMBEDDING.is_on:
        return request
    with unlimited():  # models, circuits and calls are global
        found = read_first(
            EmbeddingModel, _ACTIVE_SQL.format(columns=columns(EmbeddingModel, "model")), [embedder_name("")]
        )
        if found is None or not found[0].is_served:
            return request
        model, [has_failed] = found
        return replace(request, vector=_vector(request.text, model, has_failed=has_failed))


def _vector(text: str, model: EmbeddingModel, *, has_failed: bool) -> Vector | None:
    key = f"query:{model.pk}:{hashlib.sha256(text.encode()).hexdigest()}"
    numbers = cache.get(key)
    if numbers is None and (numbers := _embed(text, model, has_failed=has_failed)):
        cache.set(key, numbers, CACHE_SECONDS)
    return Vector(model.pk, model.dimensions, numbers) if numbers else None


def _embed(text: str, model: EmbeddingModel, *, has_failed: bool) -> list[float] | None:
    factory = embedding_model(model.recipe, timeout=TIMEOUT)
    if has_failed and Circuit.objects.refuse_query(factory.name):
        return None
    if not factory.is_free and EngineCall.objects.reached_limit():
        return None

    def record(call: CallRecord) -> None:
        if has_failed or call.error_kind or not factory.is_free:  # a free call that succeeds is not recorded
            record_call(call)

    connection.close()  # release the connection during the call
    try:
        [numbers] = factory.open(record).embed([text], is_query=True)
    except EngineError as error:
        logger.warning("query not embedded", kind=error.kind)
        return None
    found: list[float] = numbers
    return found


def record_call(call: CallRecord) -> None:
    EngineCall.objects.record(call)
    Circuit.objects.record(call, Circuit.Work.QUERY)


# --- the reranker ---


def with_relevances(
    request: RecallRequest, user_id: str | None, *, application: int, agent_id: str = "", session_id: str = ""
) -> RecallRequest:
    """Return the request with the reranker's scores of its best results; unchanged if there is no reranker or it fails.

    Don't call it within a transaction, because it waits up to `TIMEOUT` for the reranker. With a `session_id`, it
    searches as the agent of that session.
    """
    if not settings.RERANK.base_url:
        return request
    with acting_for(user_id, application=application) as user:
        if session_id and user:
            sessions = Session.objects.filter(user=user, session_id=session_id)
            agent_id = sessions.values_list("agent_id", flat=True).first() or ""
        found = recall(user, agent_id, request, most=MAX_RERANKED) if user else []
    if len(found) < 2:
        return request
    with unlimited():  # circuits and calls are global
        return replace(request, relevances=_relevances(request.text, found))


def _relevances(query: str, found: Sequence[Result]) -> Mapping[str, float]:
    from moments_app.engines.embeddings import (  # imported here because it imports an HTTP client
        Reranker,
        reranker_name,
    )

    conf = settings.RERANK
    if Circuit.objects.refuse_query(reranker_name(conf.model)) or EngineCall.objects.reached_limit():
        return {}
    connection.close()  # release the connection during the call
    reranker = Reranker(
        base_url=conf.base_url,
        api_key=conf.api_key.get_secret_value(),
        model=conf.model,
        timeout=TIMEOUT,
        record=record_call,
    )
    try:
        scores = reranker.scores(query, [result.content for result in found])
    except EngineError as error:
        logger.warning("results not reranked", kind=error.kind)
        return {}
    return {result.ref: score for result, score in zip(found, scores, strict=True)}
