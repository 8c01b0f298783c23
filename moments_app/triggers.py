"""What happens by itself, in the transaction that makes it due: an append's work, and new vectors for edited texts."""

from collections.abc import Collection, Sequence
from typing import Any

from django.conf import settings
from django.db.models.signals import post_save

from moments_app.jobs.runner import run_job
from moments_app.models import Job, MemoryAtom, Moment
from moments_app.models.embedding import KINDS, ask_to_embed, whose_memories
from moments_app.moments import build as build_moments
from moments_app.sessions import digest as digest_session
from moments_app.sessions import settle
from moments_app.streams import form as form_memories
from moments_app.summaries import roll as roll_summary
from moments_app.turns.platform_text import note_own_text
from sessions_app.models import Message, Session
from sessions_app.signals import digest_wanted, messages_appended, turns_overdue


def connect() -> None:
    """Starts to listen; called once when the app is ready."""
    messages_appended.connect(request_due_work, dispatch_uid="moments_app.triggers")
    turns_overdue.connect(settle_overdue, dispatch_uid="moments_app.triggers")
    digest_wanted.connect(digest_now, dispatch_uid="moments_app.triggers")
    for edited in (Moment, MemoryAtom):
        post_save.connect(embed_anew, sender=edited, dispatch_uid="moments_app.triggers")


def request_due_work(session: Session, messages: Sequence[Message], **_: Any) -> Sequence[Job]:
    """The jobs that became due with these messages; no query when nothing is due. What in them the platform itself had
    said is noted before any of them can run.
    """
    note_own_text(session, messages)
    jobs = []
    if build_moments.is_due(session):
        jobs.append(Job.objects.request(build_moments.NAME, session, requested_by="append"))
    if form_memories.is_due(session):
        jobs.append(Job.objects.request(form_memories.NAME, session, requested_by="append"))
    if summary := roll_summary.begin(session, roll_summary.end_of_round(messages), requested_by="append"):
        jobs.append(summary)
    if settings.EMBEDDING.turns and roll_summary.end_of_round(messages) is not None:
        jobs += filter(None, [ask_to_embed("append", session=session)])
    return jobs


def digest_now(session: Session, **_: Any) -> None:
    """Makes the digest while the request waits; one that fails is the job's matter, and the request goes on without."""
    job = Job.objects.request(digest_session.NAME, session, requested_by="request", force=True)
    run_job(job.job_id)


def settle_overdue(session: Session, **_: Any) -> None:
    """Turns past their keep-by date are remembered before they go."""
    Job.objects.request(settle.NAME, session, requested_by="retain", force=True)


def embed_anew(
    instance: Moment | MemoryAtom, created: bool, update_fields: Collection[str] | None = None, **_: Any
) -> None:
    """A fact or moment that was edited has no vector until its text is embedded again, if it still can be found."""
    if created or (update_fields is not None and not {"summary", "detail", "content", "state"} & set(update_fields)):
        return
    kind = "moment" if isinstance(instance, Moment) else "fact"
    KINDS[kind].objects.filter(source_id=instance.pk).delete()  # type: ignore[attr-defined]
    ask_to_embed("edit", **whose_memories(instance))
