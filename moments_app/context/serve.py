"""`serve_context`: a context from the request to the answer, whichever way it is asked for.

What memory is searched for is made before the transaction begins, and a digest that the session wants first as well: no
connection is held while an engine or an embeddings endpoint is asked.
"""

from dataclasses import replace

from moments_app.context.assemble import Envelope, Wanted, preview, serve
from moments_app.recall.query import question_for
from sessions_app.models import Session
from sessions_app.row_security import acting_for
from sessions_app.signals import digest_wanted


def serve_context(user_id: str | None, session_id: str, wanted: Wanted, *, retrieval: str) -> Envelope | None:
    """The context of a session, of which a receipt is kept. Not to be called within a transaction.

    Args:
        user_id: whose session it is; None for nobody.
        session_id: the application's id.
        wanted: what is asked for; its question is made here.
        retrieval: see `question_for`.

    Returns:
        None when the user has no such session.

    Raises:
        BudgetTooSmall: policy and query alone exceed the budget.
    """
    envelope = _made(user_id, session_id, wanted, retrieval)
    if envelope and envelope.scene.session.wants_digest:
        digest_wanted.send(sender=Session, session=envelope.scene.session)
        envelope = _made(user_id, session_id, wanted, retrieval)
    if envelope:
        serve(envelope)
    return envelope


def _made(user_id: str | None, session_id: str, wanted: Wanted, retrieval: str) -> Envelope | None:
    searched = retrieval if "retrieved" in wanted.layers and wanted.plan != "stable" else "off"
    question = question_for(user_id, session_id, wanted.query, retrieval=searched)
    with acting_for(user_id) as user:
        return preview(user, session_id, replace(wanted, question=question)) if user else None
