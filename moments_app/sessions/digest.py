"""`digest_session`: replace the live window of a session with a checkpoint, so that the session can continue."""

from typing import Any

from django.conf import settings
from django.db.models import Count, Sum
from django.db.models.lookups import GreaterThan
from django.dispatch import receiver

from moments_app.engines import EngineFactory, engine_name
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    InputChanged,
    Lane,
    Process,
    Progress,
    Skipped,
    Workload,
    check_corrections,
    complete,
    locked_session,
    session_of,
    settling_is_one_call,
    tokens_of,
    turns_to_estimate,
)
from moments_app.jobs.runner import run_job
from moments_app.models import Job, PromptResource
from moments_app.sessions.checkpoint import (
    DigestInput,
    DigestResult,
    digest,
    digest_engine,
    digest_input,
    live_turns,
    write_digest,
)
from moments_app.turns.engine_input import pair_safe_boundary
from sessions_app.limited_operators import unlimited
from sessions_app.models import Message, Session
from sessions_app.models.session import MIN_TURNS, UNBUILT
from sessions_app.signals import digest_wanted

PROMPT_TOKENS = 850  # tokens of a call in addition to the turns
LOOK_BACK = 200  # maximum turns to search for the tool call of the first result


class DigestSession(Process[DigestInput, DigestResult]):
    name = "digest_session"
    title = "Compact a session"
    output = "summaries that replace older messages"
    lane = Lane.WAITED
    prompt_purpose = PromptResource.Purpose.SESSION_DIGEST

    def engine_factory(self, job: Job) -> EngineFactory:
        return digest_engine()

    def claim(self, job: Job) -> DigestInput | Skipped:
        session = session_of(job)
        keep = int(job.params.get("keep", 0))  # number of newest turns that stay live
        if not job.force and session.live_count < keep + MIN_TURNS:
            return Skipped("not due: too few turns are live")
        return digest_input(session, _boundary(session, keep))

    def think(self, input: DigestInput, engine: Engine, progress: Progress) -> DigestResult:
        progress(0, 1)
        return digest(input, engine)

    def commit(self, job: Job, input: DigestInput, answer: DigestResult) -> None:
        """Write the partition event and the lessons, and complete the job.

        Turns that arrived after the claim stay live.

        Raises:
            ClaimLost: the job was taken over, or the session was deleted.
            InputChanged: another job moved the live window, or a fact was corrected, in the meantime.
        """
        session = locked_session(job)
        if session.live_from_sequence != input.session.live_from_sequence:
            raise InputChanged("The live window changed while the engine was working.")
        check_corrections(session.user_id, input.corrections)
        complete(job, "session_digested", write_digest(job, session, input, answer))

    def rewind(self, job: Job) -> bool:
        session = session_of(job)
        latest = list(Message.objects.boundaries_of(session)[:2])
        if not latest:
            return False
        latest[0].delete()
        session.live_from_sequence = latest[1].sequence + 1 if latest[1:] else 0
        return True

    def workload(self, *, everything: bool) -> Workload | None:
        if settling_is_one_call():
            return None
        turns = turns_to_estimate(UNBUILT, everything=everything)
        calls = Count("id", filter=GreaterThan(turns, 0))
        engine = engine_name(settings.ENGINE.model)
        return Workload(engine, calls, Sum(tokens_of(turns)), usual_answer=450, prompt_tokens=PROMPT_TOKENS)


def _boundary(session: Session, keep: int) -> int:
    """Return the sequence number of the first turn that stays live. Don't separate a tool call from its result."""
    newest = live_turns(session).order_by("-sequence")[: keep + LOOK_BACK]
    turns = list(newest)[::-1]
    boundary = pair_safe_boundary(turns, max(len(turns) - keep, 0))
    return turns[boundary].sequence if boundary < len(turns) else session.last_sequence + 1


@receiver(digest_wanted)
def digest_now(session: Session, **_: Any) -> None:
    """Create the digest synchronously. If that fails, continue the request without it."""
    with unlimited():  # runs a worker's job within a request
        job = Job.objects.request(DigestSession.name, session, requested_by="request", force=True)
        run_job(job.job_id)
