"""`run_probes`: each probe gets the context that its question would get now, and what of the answer is there is kept.

A context is made as a request makes it, by the same role and rules, and nothing is noted as served. No model is called;
where texts are embedded, the question is. Each result is committed by itself: a run that is broken off goes on where it
was.
"""

import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from memory_extras.lab.models import Probe, ProbeResult
from memory_extras.lab.models.probe import ProbeQuerySet
from memory_extras.lab.probes.measure import Measure, measured, setup_of
from moments_app.context.assemble import BudgetTooSmall, Envelope
from moments_app.context.request import ContextRequest
from moments_app.context.serve import assembled
from moments_app.jobs.process import ClaimLost, Lane, Process, ProcessInput, Progress, Skipped
from moments_app.models import Job
from sessions_app.insert import insert_unless_there
from sessions_app.models import Message, Session
from sessions_app.row_security import acting_for

NO_SESSION = "The person has no session to ask the question in."


@dataclass(frozen=True)
class ProbesInput(ProcessInput):
    """How many probes a run has asked, and how many were met."""

    probes: int
    met: int


class RunProbes(Process[ProbesInput, None]):
    """Asks the probes of a person, or those that are asked in one session."""

    name = "run_probes"
    title = "Run probes"
    makes = "answers to probes"
    lane = Lane.BULK
    is_upkeep = True

    def prepare(self, job: Job, progress: Progress) -> None:
        """Ask them, one after the other, outside any transaction."""
        waiting = _probes_of(job).exclude(results__run_id=job.job_id)
        total = waiting.count()
        for done, _ in enumerate(ask(waiting, job.job_id, requested_by=job.requested_by), start=1):
            progress(done, total)

    def claim(self, job: Job) -> ProbesInput | Skipped:
        """Count what came of it."""
        results = ProbeResult.objects.filter(run_id=job.job_id, user=job.user_id)
        found = ProbesInput(None, results.count(), results.filter(is_met=True).count())
        return found if found.probes else Skipped("there are no probes")

    def think(self, input: ProbesInput, engine: None, progress: Progress) -> None:
        """There is nobody to ask."""

    def commit(self, job: Job, input: ProbesInput, answer: None) -> None:
        """Complete the job."""
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"probes": input.probes, "met": input.met})


def _probes_of(job: Job) -> ProbeQuerySet:
    probes = Probe.objects.filter(user=job.user_id)
    return probes.filter(session=job.session) if job.session_id else probes


def ask(probes: ProbeQuerySet, run_id: uuid.UUID, *, requested_by: str) -> Iterator[ProbeResult]:
    """Ask probes and keep what came of it. Not to be called within a transaction.

    Args:
        probes: of whomever.
        run_id: of the run, which has one result of each.
        requested_by: key:…, operator:… or command.
    """
    for probe in list(probes.select_related("user", "session", "source_session").order_by("pk")):
        result = asked(probe, run_id, requested_by=requested_by)
        if result is not None:
            yield result


def asked(probe: Probe, run_id: uuid.UUID, *, requested_by: str) -> ProbeResult | None:
    """Ask one probe and keep what came of it; None when the probe or its person is gone meanwhile."""
    application = probe.user.application_id
    session = session_to_ask_in(probe)
    try:
        envelope = _context(probe, session, application) if session else None
        problem = "" if envelope else NO_SESSION
    except BudgetTooSmall as error:
        envelope, problem = None, str(error)
    with acting_for(probe.user.user_id, application=application, holding=True) as user:
        if user is None or not Probe.objects.for_user(user).filter(pk=probe.pk).exists():
            return None
        measure = measured(probe, evidence_of(probe), envelope) if envelope else Measure(problem=problem)
        kept = {"is_met": measure.is_met, "setup": setup_of(application), "requested_by": requested_by}
        result = ProbeResult(run_id=run_id, probe=probe, user=user, **asdict(measure), **kept)
        insert_unless_there(result)
        return result


def _context(probe: Probe, session: Session, application: int) -> Envelope | None:
    request = ContextRequest(query=probe.question)
    return assembled(probe.user.user_id, application, session.session_id, request, "query")


def session_to_ask_in(probe: Probe) -> Session | None:
    """Return the session that a probe names, else the one that its person was in last; None where there is none."""
    if probe.session_id:
        return probe.session
    return Session.objects.for_user(probe.user).order_by("-last_activity_at", "-id").first()


def evidence_of(probe: Probe) -> list[Message]:
    """Return the turns that are named as evidence, as far as they are there, archived ones too."""
    if probe.source_session_id is None:
        return []
    turns = Message.objects.filter(session=probe.source_session_id, user=probe.user_id, retracted_at=None)
    return list(turns.exclude(kind=Message.Kind.PARTITION).filter(sequence__in=probe.evidence_sequences))
