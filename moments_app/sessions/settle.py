"""`settle`: a session that has gone quiet is brought up to date in every memory, and cleared.

Moments of every turn that none holds, and memories: each step is a job of its own. Only when both are done is the last
digest made and the session cleared: nothing is live, and the next message starts from the checkpoint that is left. That
says what a summary of the last turns would say, so none is rolled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Count, F, FloatField, Sum
from django.db.models.functions import Cast, Greatest, Least
from django.db.models.lookups import GreaterThan

from moments_app.engines import Caller, engine_name
from moments_app.engines.interface import Engine
from moments_app.engines.together import PURPOSE, Part
from moments_app.jobs.orchestrator import Orchestrator, Step
from moments_app.jobs.process import Lane, Moved, ProcessInput, Progress, Skipped, complete, locked_session, session_of
from moments_app.jobs.workload import Workload, settling_combines, tokens_of, turns_that
from moments_app.models import Job, Moment
from moments_app.moments.division import SETTLING
from moments_app.moments.partition import known_at
from moments_app.sessions.checkpoint import (
    Digested,
    DigestInput,
    digest,
    digest_input,
    digest_part,
    digester,
    leave_digest,
    leave_event,
)
from moments_app.sessions.settle_together import SETTLED, settle_together
from sessions_app.models import Message, Session
from sessions_app.models.session import UNBUILT

PROMPT_TOKENS = 1_350  # of a combined call beside the turns: prompts, and what is known
TURN_TOKENS = 10.0  # of each turn in a request beside its text
UNFORMED = F("message_count") - F("formed_message_count")


@dataclass(frozen=True)
class SettleInput(ProcessInput):
    """The input, when all steps are done.

    Args:
        session: as it was at the claim.
        digest: of what is live; None where there is nothing.
    """

    session: Session
    digest: DigestInput | None


class Settle(Orchestrator[SettleInput, Digested | None]):
    """Brings a quiet session up to date, and clears it."""

    name = "settle"
    lane = Lane.BULK

    def why_not(self, job: Job) -> str:
        """Return why the session is not settled; a forced settling needs no number of turns."""
        this = Session.objects.filter(pk=session_of(job).pk)
        wanted = this.idle() if job.force else this.quiet()
        return "" if wanted.exists() else "not quiet, or too few turns"

    def steps(self) -> Sequence[Step]:
        return [self._ask_together, self._build, self._form]

    def _ask_together(self, job: Job) -> None:
        """Have all that is due asked for in one call; what comes of it waits for the other steps and the digest."""
        form: dict[str, dict[str, Any]] = {"form_memories": {}} if settings.MEMORY_FORMATION.enabled else {}
        self.ask_together(job, {"build_moments": SETTLING} | form)

    def _build(self, job: Job) -> None:
        """Build moments of every turn that none holds, without a lag."""
        while _as_it_is(job).unbuilt_count:
            if self.run_step(job, "build_moments", **SETTLING) != Job.Status.COMPLETED:
                return

    def _form(self, job: Job) -> None:
        """Form memories of every turn that no formation has seen."""
        while settings.MEMORY_FORMATION.enabled and _has_unformed(job):
            if self.run_step(job, "form_memories") != Job.Status.COMPLETED:
                return

    def run_together(self, job: Job) -> bool:
        """Settle the session with others of its person, where no engine has to be waited for."""
        return settle_together(job)

    def caller(self, job: Job) -> Caller:
        """Return who writes the digest; the steps have callers of their own."""
        return digester()

    def claim(self, job: Job) -> SettleInput | Skipped:
        """Read what is live, if nobody has said anything since."""
        session = _as_it_is(job)
        if not Session.objects.filter(pk=session.pk).idle().exists():
            return Skipped("not quiet any more")
        found = digest_input(session, session.last_sequence + 1)
        last = None if isinstance(found, Skipped) else found
        return SettleInput(last.prompt_version if last else None, session, last)

    def part(self, input: SettleInput) -> Part | None:
        return digest_part(input.digest) if input.digest else None

    def workload(self, *, everything: bool) -> Workload | None:
        """Reckon with the combined calls; calls for one thing each are told by the processes that make them."""
        if not settling_combines():
            return None
        turns = Cast(turns_that(Greatest(UNBUILT, UNFORMED), everything=everything), FloatField())
        calls = Count("id", filter=GreaterThan(turns, 0.0))
        shown = Least(tokens_of(turns), float(settings.MOMENT_BUILDER.max_input_tokens)) + turns * TURN_TOKENS
        engine = engine_name(settings.ENGINE.model)
        return Workload(engine, calls, Sum(shown), usual_answer=1_500, prompt_tokens=PROMPT_TOKENS, purpose=PURPOSE)

    def think(self, input: SettleInput, engine: Engine, progress: Progress) -> Digested | None:
        """Call the engine for the digest."""
        return digest(input.digest, engine) if input.digest else None

    def commit(self, job: Job, input: SettleInput, answer: Digested | None) -> None:
        """Leave the last checkpoint, clear the session, and complete the job.

        Raises:
            ClaimLost: the job was taken over, or the session is gone.
            Moved: the session woke up meanwhile.
        """
        session = locked_session(job)
        then = input.session
        if (session.last_sequence, session.live_from_sequence) != (then.last_sequence, then.live_from_sequence):
            raise Moved("The session woke up meanwhile.")
        _take_along(session)
        if input.digest and answer:
            result = leave_digest(job, session, input.digest, answer, cleared=True)
        else:
            result = _leave_known(session)
        session.status = Session.Status.CLEARED
        session.save(update_fields=["status"])
        complete(job, SETTLED, result)


def _as_it_is(job: Job) -> Session:
    return Session.objects.select_related("user").get(pk=session_of(job).pk)


def _has_unformed(job: Job) -> bool:
    session = _as_it_is(job)
    return session.message_count > session.formed_message_count


def _take_along(session: Session) -> None:
    """Give the turns at the end that no engine is shown, system turns, to the last moment."""
    last = Moment.objects.filter(user_id=session.user_id, source_session=session).order_by("-last_sequence").first()
    if last is None or not session.unbuilt_count:
        return
    left = session.messages.turns().believed().filter(user_id=session.user_id, sequence__gt=last.last_sequence)
    left.update(moment=last)
    last.last_sequence = session.built_to = session.last_sequence
    last.save(update_fields=["last_sequence"])
    session.save(update_fields=["last_moment_message_idx"])


def _leave_known(session: Session) -> dict[str, object]:
    """Leave the checkpoint of a session with nothing left to digest: what the one before it says."""
    known = known_at(Message.objects.boundaries_of(session).first())
    turns = range(session.live_from_sequence, session.last_sequence + 1)
    leave_event(session, known, [], turns, cleared=True)
    return {"first_sequence": turns.start, "last_sequence": session.last_sequence, "lessons": 0}
