"""Signal receivers. They run in the sender's transaction: queue jobs after an append, update vectors, send webhooks."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from moments_app.jobs.process import processes
from moments_app.jobs.runner import run_job
from moments_app.jobs.scheduled import call_later
from moments_app.models import Job, MemoryAtom, Moment, WebhookDelivery
from moments_app.models.embedding import KINDS, owner_arguments, queue_embedding
from moments_app.sessions.digest import DigestSession
from moments_app.sessions.settle import Settle
from moments_app.streams.add_atoms import add_statements
from moments_app.streams.edit import edit_profile
from moments_app.turns.platform_text import compare_lines, note_platform_text
from sessions_app.imports.import_sessions import Statement
from sessions_app.limited_operators import unlimited
from sessions_app.models import DailyLimit, Event, Message, Session, UserProfile
from sessions_app.signals import call_wanted, digest_wanted, profile_edited, statements_imported, turns_overdue
from sessions_app.transcript.append import NewMessage, messages_appended, messages_received


@receiver(messages_received)
def mark_platform_lines(messages: Sequence[NewMessage], **_: Any) -> None:
    compare_lines(messages)


@receiver(messages_appended)
def request_due_work(appended: Sequence[tuple[Session, Sequence[Message]]], **_: Any) -> Sequence[Job]:
    """Queue the jobs that these messages make due, and return them. Run no query if nothing is due."""
    for session, messages in appended:  # before the jobs, which ignore platform text
        note_platform_text(session, messages)
    return [job for process in processes() for job in process.after_append(appended)]


@receiver(call_wanted)
def queue_function(function: str, args: Sequence[Any], user_pk: int | None, **_: Any) -> None:
    call_later(function, *args, user_id=user_pk)


@receiver(post_save, sender=Event)
def queue_webhooks(instance: Event, created: bool, **_: Any) -> None:
    if created:
        WebhookDelivery.objects.queue(instance)


@receiver(statements_imported)
def import_statements(people: Mapping[str, UserProfile], statements: Sequence[Statement], **_: Any) -> int:
    return add_statements(people, statements)


@receiver(digest_wanted)
def digest_now(session: Session, **_: Any) -> None:
    """Create the digest synchronously. If that fails, continue the request without it."""
    with unlimited():  # runs a worker's job within a request
        job = Job.objects.request(DigestSession.name, session, requested_by="request", force=True)
        run_job(job.job_id)


@receiver(turns_overdue)
def settle_overdue(session: Session, **_: Any) -> None:
    """Queue a settle job for a session with turns past the retention period, which are deleted once it has run."""
    Job.objects.request(Settle.name, session, requested_by="retain", force=True)


@receiver(post_save, sender=Moment)
@receiver(post_save, sender=MemoryAtom)
def embed_again(
    instance: Moment | MemoryAtom, created: bool, update_fields: Collection[str] | None = None, **_: Any
) -> None:
    """Delete the vector of an edited fact or moment, and embed it again if searches can still find it."""
    if created or (update_fields is not None and not {"summary", "detail", "content", "state"} & set(update_fields)):
        return
    kind = "moment" if isinstance(instance, Moment) else "fact"
    KINDS[kind].objects.filter(source_id=instance.pk).delete()
    queue_embedding("edit", **owner_arguments(instance))


@receiver(profile_edited)
def write_into_profile(profile: UserProfile, edits: Mapping[str, Any], actor: str, **_: Any) -> None:
    edit_profile(profile, edits, actor=actor)


@receiver([post_save, post_delete], sender=DailyLimit)
def resume_postponed_jobs(**_: Any) -> None:
    """Make jobs due again that a daily limit has postponed. They check the changed limits when they run."""
    Job.objects.resume_postponed()
