"""Listens to the transcript: an append that makes work due asks for it, in the append's own transaction."""

from collections.abc import Sequence
from typing import Any

from moments_app.models import Job
from moments_app.processes import build_moments, form_memories, roll_summary
from sessions_app.models import Message, Session
from sessions_app.signals import messages_appended


def connect() -> None:
    """Starts to listen; called once when the app is ready."""
    messages_appended.connect(request_due_work, dispatch_uid="moments_app.triggers")


def request_due_work(session: Session, messages: Sequence[Message], **_: Any) -> Sequence[Job]:
    """The jobs that became due with these messages; no query when nothing is due."""
    jobs = []
    if build_moments.is_due(session):
        jobs.append(Job.objects.request(build_moments.NAME, session, requested_by="append"))
    if form_memories.is_due(session):
        jobs.append(Job.objects.request(form_memories.NAME, session, requested_by="append"))
    if summary := roll_summary.begin(session, roll_summary.end_of_round(messages), requested_by="append"):
        jobs.append(summary)
    return jobs
