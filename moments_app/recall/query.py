"""Get the query to search memory with for a message: the message itself, or a query that a fast engine writes.

The engine and the embeddings endpoint are called before the request's transaction starts, each with a timeout of a few
seconds. If a call fails, the message itself is the query, or the search uses words only.
"""

from dataclasses import dataclass, field
from typing import Any

import structlog
from django.conf import settings
from django.db import connection

from moments_app.engines import language_model
from moments_app.engines.calls.recall_query import QueryRequest
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.engines.transcript import Turn
from moments_app.models import Circuit, EngineCall, PromptResource, PromptVersion
from moments_app.prompts import RECALL_QUERY_URI
from moments_app.recall.query_vector import with_vector
from moments_app.recall.request import RecallRequest
from moments_app.recall.rerank import with_relevances
from moments_app.turns.engine_input import engine_turn
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.limited_operators import unlimited
from sessions_app.models import Message, UserProfile
from sessions_app.row_security import acting_for

RETRIEVAL = ("query", "auto", "off")
TURNS = 10  # latest turns that are sent to the engine
TURN_TOKENS = 300  # maximum tokens of each of these turns
SECONDS = 2.0  # timeout of the engine; after that, the message itself is the query

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EngineInput:
    """The engine's input: the latest turns, oldest first, and the prompt."""

    turns: list[Turn] = field(default_factory=list)
    prompt: PromptVersion | None = None


def recall_request_for(
    user_id: str | None, session_id: str, message: str, *, application: int, retrieval: str
) -> RecallRequest | None:
    """Return the search to run for a message, or None to search nothing.

    Args:
        user_id: the person whose memory is searched; None for an unknown person.
        session_id: the session that the message belongs to.
        application: primary key of the application that names the person.
        retrieval: `query`: the message is the query; `auto`: an engine writes one; `off`: nothing is searched.
    """
    if retrieval == "off" or not message.strip():
        return None
    text = _query(user_id, application, session_id, message) if retrieval == "auto" else message
    if not text.strip():
        return None
    return with_relevances(with_vector(RecallRequest(text)), user_id, application=application, session_id=session_id)


def _query(user_id: str | None, application: int, session_id: str, message: str) -> str:
    """Return the query that the engine writes for the message, or the message itself if the engine writes none."""
    caller = language_model(settings.ENGINE.model_for_speed, timeout=SECONDS)
    with unlimited():  # circuits and calls are global
        is_refused = Circuit.objects.refuse_query(caller.name) or EngineCall.objects.used_up()
    with acting_for(user_id, application=application) as user:
        read = _engine_input(user, session_id) if user else EngineInput()
    if not read.turns or read.prompt is None or is_refused:
        return message
    connection.close()  # to hold no connection while the engine works
    prompt = read.prompt

    def record(call: CallRecord) -> None:
        with unlimited():
            EngineCall.objects.keep(call, prompt_version=prompt)
            Circuit.objects.note(call, Circuit.Work.QUERY)
        connection.close()

    try:
        answer: Any = caller.open(record).recall_query(QueryRequest(read.turns, message, prompt.content))
    except EngineError as error:
        logger.warning("no query from the engine", kind=error.kind)
        return message
    query: str = answer.query
    return query


def _engine_input(user: UserProfile, session_id: str) -> EngineInput:
    turns = Message.objects.turns().believed().for_user(user).filter(session__session_id=session_id, session__user=user)
    latest = turns.exclude(role=Message.Role.SYSTEM).order_by("-sequence")[:TURNS]
    turns_read = drop_platform_text(list(latest)[::-1])
    prompts = PromptResource.objects.for_application(RECALL_QUERY_URI, user.application_id)
    resource = prompts.filter(active_version__isnull=False).select_related("active_version").first()
    shown = [engine_turn(turn, TURN_TOKENS, user.zone, index=turn.sequence) for turn in turns_read]
    return EngineInput(shown, resource.active_version if resource else None)
