"""What a workflow goes on with in place of a session's history: the rolling summary and the few turns after it."""

from dataclasses import dataclass

from django.conf import settings

from moments_app.models import Summary
from sessions_app.models import Message, Session
from sessions_app.processes.load import Omitted, left_out, load_session_messages


@dataclass(frozen=True)
class WorkflowContext:
    """A summary, None when there is none yet, what it doesn't cover, oldest first, and what of that was left out."""

    summary: Summary | None
    messages: list[Message]
    omitted: Omitted | None


def get_context_for_workflow(session: Session) -> WorkflowContext:
    """The latest completed summary and the gap behind it.

    The gap ends before the newest user turn when that is unanswered: it is what the workflow is about to work on.
    Without a summary: the live window. Neither is longer than a reload.
    """
    limit = settings.MOMENT_BUILDER.reload_limit
    summary = Summary.objects.latest_completed(session)
    if summary is None:
        loaded = load_session_messages(session, limit)
        return WorkflowContext(None, loaded.messages, loaded.omitted)
    after = session.messages.turns().believed().filter(user_id=session.user_id, sequence__gt=summary.end_sequence)
    newest = list(after.order_by("-sequence")[: limit + 2])
    if newest and newest[0].role == Message.Role.USER:
        newest = newest[1:]
    more = newest[limit:][:1]
    omitted = left_out(session, summary.end_sequence + 1, more[0].sequence) if more else None
    return WorkflowContext(summary, newest[:limit][::-1], omitted)
