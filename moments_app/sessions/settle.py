"""`settle`: a session that has gone quiet is brought up to date in every memory, and cleared.

Moments of every turn that none holds, memories, the summary and a last digest: each step is a job of its own, run here
one after the other, so that a failing one is seen and tried again by itself. Only when all of them are done is the
session cleared: nothing is live, and the next message starts from the checkpoint that is left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from moments_app.engines import Caller, language_model
from moments_app.engines.interface import Engine
from moments_app.jobs.process import CannotRun, Moved, Skipped, Waits, complete, locked_session
from moments_app.models import Job, Moment, PromptVersion
from moments_app.moments import build as build_moments
from moments_app.moments.partition import PartitionEvent, known_at
from moments_app.sessions import digest as digest_session
from moments_app.streams import form as form_memories
from moments_app.summaries import roll as roll_summary
from sessions_app.models import Message, Session

NAME = "settle"
BUSY_PAUSE = timedelta(seconds=5)  # while another worker is at one of the steps


@dataclass(frozen=True)
class Work:
    """The input.

    Args:
        session: as it was at the claim.
        asked_at: when the settling was asked for.
        digest: of what is live; None where there is nothing.
    """

    session: Session
    asked_at: datetime
    digest: digest_session.Work | None

    @property
    def prompt_version(self) -> PromptVersion | None:
        return self.digest.prompt_version if self.digest else None


def caller(job: Job) -> Caller:
    """Who writes the digest; the other steps have callers of their own."""
    return language_model(settings.SESSION_COMPACTION.model)


# --- claim ---


def claim(job: Job) -> Work | Skipped:
    """Reads what is live, if the session is quiet still. A forced one need not have many turns.

    Raises:
        CannotRun: when the prompt resource has no active version.
    """
    session = job.session
    assert session is not None  # it is about one, always
    this = Session.objects.filter(pk=session.pk)
    if not (this.idle() if job.force else this.quiet()).exists():
        return Skipped("not quiet, or too few turns")
    digest = digest_session.read(session, session.last_sequence + 1)
    return Work(session, job.queued_at, None if isinstance(digest, Skipped) else digest)


# --- think ---


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> digest_session.Digested | None:
    """Runs the steps, then calls the engine for the digest.

    Raises:
        Waits: a step is not done yet.
        CannotRun: a step has failed or was cancelled.
        EngineError: when the engine gave no valid digest.
    """
    steps = (_build, _form, _summarise)
    for number, step in enumerate(steps):
        progress(number, len(steps) + 1)
        step(work)
    connection.close()  # none is held while the engine thinks
    return digest_session.think(work.digest, engine, lambda done, total: None) if work.digest else None


def _build(work: Work) -> None:
    """Moments of every turn that none holds, without a lag."""
    params: dict[str, object] = {"lag": 0, "settling": True}
    while _as_it_is(work).unbuilt_count and _run(build_moments.NAME, work, params) == Job.Status.COMPLETED:
        pass


def _form(work: Work) -> None:
    """Memories of every turn that no formation has seen."""
    while settings.MEMORY_FORMATION.enabled and _has_unformed(work):
        if _run(form_memories.NAME, work, {}) != Job.Status.COMPLETED:
            return


def _has_unformed(work: Work) -> bool:
    session = _as_it_is(work)
    return session.message_count > session.formed_message_count


def _summarise(work: Work) -> None:
    """The rolling summary up to the last round."""
    conf = settings.ROLLING_SUMMARY
    if conf.enabled and work.session.last_sequence >= conf.summarize_after_seq:
        _run(roll_summary.NAME, work, {})


def _as_it_is(work: Work) -> Session:
    return Session.objects.get(pk=work.session.pk)


def _run(process: str, work: Work, params: dict[str, object]) -> str:
    """Runs a step to an outcome. One that has failed since the settling was asked for is left to the next settling.

    Raises:
        Waits: it is being done elsewhere, or waits for another attempt.
        CannotRun: it failed, or was cancelled.
    """
    from moments_app.jobs.runner import run_job  # which knows this module as one of its processes

    session = work.session
    failed = Job.objects.filter(process=process, session=session, status=Job.Status.FAILED)
    if gone := failed.filter(finished_at__gte=work.asked_at).first():
        raise CannotRun(f"{process} failed, see job {gone.job_id}.")
    asked = Job.objects.request(process, session, requested_by=NAME, force=True, params=params)
    job = run_job(asked.job_id) or Job.objects.get(pk=asked.pk)
    if job.status == Job.Status.FAILED:
        raise CannotRun(f"{process} failed, see job {job.job_id}.")
    if job.is_cancelled:
        raise CannotRun(f"{process} was cancelled, see job {job.job_id}.")
    if job.status in Job.OPEN:
        raise Waits(max(job.run_after, timezone.now() + BUSY_PAUSE), f"Waiting for {process}, job {job.job_id}.")
    return job.status


# --- commit ---


def commit(job: Job, work: Work, made: digest_session.Digested | None) -> None:
    """Leaves the last checkpoint, clears the session, and completes the job.

    Raises:
        ClaimLost: the job was taken over, or the session is gone.
        Moved: the session woke up meanwhile.
    """
    session = locked_session(job)
    then = work.session
    if (session.last_sequence, session.live_from_sequence) != (then.last_sequence, then.live_from_sequence):
        raise Moved("The session woke up meanwhile.")
    _take_along(session)
    if work.digest and made:
        result = digest_session.leave(job, session, work.digest, made, cleared=True)
    else:
        result = _leave_known(session)
    session.status = Session.Status.CLEARED
    session.save(update_fields=["status"])
    complete(job, "session_settled", result)


def _take_along(session: Session) -> None:
    """Turns at the end that no engine is shown, system turns, go with the last moment."""
    last = Moment.objects.filter(user_id=session.user_id, source_session=session).order_by("-last_sequence").first()
    if last is None or not session.unbuilt_count:
        return
    left = session.messages.turns().believed().filter(user_id=session.user_id, sequence__gt=last.last_sequence)
    left.update(moment=last)
    last.last_sequence = session.last_moment_message_idx = session.last_sequence
    last.save(update_fields=["last_sequence"])
    session.save(update_fields=["last_moment_message_idx"])


def _leave_known(session: Session) -> dict[str, object]:
    """The checkpoint of a session with nothing left to digest: what the one before it says."""
    known = known_at(Message.objects.boundaries_of(session).first())
    turns = range(session.live_from_sequence, session.last_sequence + 1)
    PartitionEvent.of_digest(known, [], turns, session=session, cleared=True).leave(session.last_sequence)
    session.begin_live_window(session.last_sequence + 1)
    session.note_summarised(session.last_sequence)
    return {"first_sequence": turns.start, "last_sequence": session.last_sequence, "lessons": 0}


# --- when it came to nothing ---


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: each step stands by itself, and the session is cleared last."""
