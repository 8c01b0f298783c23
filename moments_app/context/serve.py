"""`serve_context`: a context from the request to the answer, whichever way it is asked for.

The query for memory is made before the transaction begins, and so is a digest that the session wants first: no
connection is held while an engine or an embeddings endpoint is asked.
"""

from dataclasses import replace
from functools import partial

from moments_app.context.assemble import Envelope, preview, serve
from moments_app.context.request import ContextRequest
from moments_app.context.unbegun import unknown_person
from moments_app.recall.query import recall_request_for
from sessions_app.models import Session
from sessions_app.row_security import acting_for
from sessions_app.signals import digest_wanted


def serve_context(
    user_id: str | None, session_id: str, request: ContextRequest, *, application: int, retrieval: str
) -> Envelope | None:
    """Return the context of a session and keep a receipt. Not to be called within a transaction.

    Args:
        user_id: whose session it is; None for nobody.
        session_id: the application's id.
        request: what is asked for; what memory is searched for is added here.
        application: primary key of the one that names the person.
        retrieval: see `recall_request_for`.

    Returns:
        None when the user has no such session, and the request names no agent that would begin it; or for nobody.

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
    """Return the context of a session; nothing about it is noted. Not to be called within a transaction.

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
