"""What the processes with an engine share: how a claim or a commit says that there is nothing to write."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moments_app.models import Job, MemoryStream, PromptResource, PromptVersion
from moments_app.models.embedding import ask_to_embed, whose_memories
from sessions_app.models import Event, Session
from sessions_app.refusals import Refusal


@dataclass(frozen=True)
class Skipped:
    """What a claim returns that found nothing to do."""

    reason: str


class CannotRun(Refusal):
    """The job can't be done as things are set up; another try would not help. The message says what to mend."""


class Moved(Exception):
    """What the claim read has changed since: the work is to be done again with what is there now."""


class Waits(Exception):
    """The work can't go on before something else is done; the attempt doesn't count.

    Args:
        until: when to look again.
        reason: what is waited for.
    """

    def __init__(self, until: datetime, reason: str) -> None:
        super().__init__(reason)
        self.until = until


class ClaimLost(Exception):
    """The job was taken over or cancelled, or what it was about is gone: this run writes nothing."""


def prompt_in_force(uri: str) -> PromptVersion:
    """The active version of a prompt resource.

    Raises:
        CannotRun: there is none; names the URI.
    """
    try:
        return PromptResource.objects.version_in_force(uri)
    except PromptResource.DoesNotExist as error:
        raise CannotRun(str(error)) from error


def locked_session(job: Job) -> Session:
    """The session a job is about, locked for its commit.

    Raises:
        ClaimLost: the job was taken over, or the session is gone.
        Moved: turns of it were retracted, or are believed again, since the claim.
    """
    assert job.session is not None  # it is about one
    session = Session.objects.locked().filter(pk=job.session.pk).first()
    if session is None or not job.is_claimed():
        raise ClaimLost
    if session.retraction_count != job.session.retraction_count:
        raise Moved("Turns were retracted meanwhile.")
    return session


def complete(job: Job, event: str, result: dict[str, Any]) -> None:
    """Ends a job that did its work, and says so in the event log."""
    job.complete(result)
    Event.objects.create(
        type=event, actor=f"job:{job.job_id}", user_pk=job.user_id, session_pk=job.session_id, payload=result
    )


def has_grown(stream: MemoryStream, *, requested_by: str) -> None:
    """Notes that a stream has new atoms, and asks for what makes them found well."""
    stream.touch()
    about = whose_memories(stream)
    Job.objects.request("count_words", requested_by=requested_by, **about)
    ask_to_embed(requested_by, **about)
