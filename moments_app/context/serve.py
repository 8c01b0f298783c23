"""`serve_context`: build a context for a request of any interface.

The search query, and a digest that the session needs first, are created before the transaction starts. So no connection
is held while an engine or an embeddings endpoint works.
"""

from dataclasses import replace
from functools import partial

from moments_app.context.assemble import Envelope, preview, serve, unknown_person
from moments_app.context.request import ContextRequest
from moments_app.recall.query import recall_request_for
from sessions_app.models import Session
from sessions_app.row_security import acting_for
from sessions_app.signals import digest_wanted


def serve_context(
    user_id: str | None, session_id: str, request: ContextRequest, *, application: int, retrieval: str
) -> Envelope | None:
    """Return the context of a session and save a receipt. Don't call it within a transaction.

    Args:
        user_id: the person; None for an unknown person.
        session_id: the application's id.
        request: the request; the search of memory is added here.
        application: primary key of the application that names the person.
        retrieval: see `recall_request_for`.

    Returns:
        None if the person is unknown, or if the session doesn't exist and the request names no agent for a new one.

    Raises:
        BudgetTooSmall: policy and query alone exceed the budget.
    """
    assemble = partial(assembled, user_id, application, session_id, request, retrieval)
    envelope = assemble()
    if envelope and envelope.input.session.wants_digest and request.as_of is None:
        digest_wanted.send(sender=Session, session=envelope.input.session)
        envelope = assemble()
    if envelope:
        serve(envelope)
    return envelope


def assembled(
    user_id: str | None, application: int, session_id: str, request: ContextRequest, retrieval: str
) -> Envelope | None:
    """Return the context of a session without recording anything. Don't call it within a transaction.

    Args:
        user_id, application, session_id, request, retrieval: as in `serve_context`.

    Raises:
        BudgetTooSmall: policy and query alone exceed the budget.
    """
    is_searched = "retrieved" in request.layers and request.plan != "stable"
    retrieval = retrieval if is_searched else "off"
    recall = recall_request_for(user_id, session_id, request.query, application=application, retrieval=retrieval)
    recall = replace(recall, as_of=request.as_of) if recall else None
    with acting_for(user_id, application=application) as user:
        if user is None and user_id is not None and request.new_agent_id:
            user = unknown_person(user_id, application)
        return preview(user, session_id, replace(request, recall=recall)) if user else None
