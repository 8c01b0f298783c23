"""The process that makes the rows, and its schedule."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Func

from moments_app.jobs.process import (
    Process,
    ProcessInput,
    Progress,
    QueuedJobs,
    Skipped,
    Timing,
    complete,
    locked_session,
    session_of,
)
from moments_app.models import Job
from sessions_app.models import Message, Session
from sessions_app.models.message import MessageQuerySet
from tests.support.promises_app.models import Promise

WORDS = "I promise"


@dataclass(frozen=True)
class PromisesInput(ProcessInput):
    """The turns with a promise that is not noted yet."""

    turns: Sequence[Message]


class NotePromises(Process[PromisesInput, list[str]]):
    """Notes what a person has promised."""

    name = "note_promises"
    title = "Note promises"
    sweep_timing = Timing(minutes=30)

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        return any(WORDS in message.content for message in messages)

    def claim(self, job: Job) -> PromisesInput | Skipped:
        turns = list(_unnoted(session_of(job)))
        return PromisesInput(None, turns) if turns else Skipped("no new promise")

    def think(self, input: PromisesInput, engine: None, progress: Progress) -> list[str]:
        return [turn.content.partition(WORDS)[2].strip() for turn in input.turns]

    def commit(self, job: Job, input: PromisesInput, answer: list[str]) -> None:
        session = locked_session(job)
        rows = [
            Promise(user_id=session.user_id, source_session=session, source_message_ids=[turn.pk], job=job, text=text)
            for turn, text in zip(input.turns, answer, strict=True)
        ]
        Promise.objects.bulk_create(rows)
        complete(job, "promises_noted", {"promises": len(rows)})

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue the sessions with promises that are not noted yet."""
        waiting = [session for session in Session.objects.order_by("pk") if _unnoted(session).exists()]
        for session in () if dry_run else waiting:
            Job.objects.request(self.name, session, requested_by=self.name)
        return QueuedJobs(len(waiting))


def _unnoted(session: Session) -> MessageQuerySet:
    noted = Promise.objects.filter(source_session=session).values(turn=Func("source_message_ids", function="unnest"))
    turns = session.messages.turns().unretracted().filter(role=Message.Role.USER, content__contains=WORDS)
    return turns.exclude(pk__in=noted).order_by("sequence")
