"""`run_probes`: build the context for each probe's question, and record how much of the answer it contains.

The contexts are built as for requests, under the same role and rules, but are not recorded as served. No model is
called, except to embed the questions if embeddings are on. Each result is committed separately, so an interrupted run
can resume.
"""

import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from memory_extras.lab.models import Probe, ProbeResult
from memory_extras.lab.models.probe import ProbeQuerySet
from memory_extras.lab.probes.measure import Measure, measured, setup_of
from moments_app.context.assemble import ContextRequest, Envelope, assembled
from moments_app.context.budget import BudgetTooSmall
from moments_app.jobs.process import ClaimLost, Lane, Process, ProcessInput, Progress, Skipped
from moments_app.models import Job
from sessions_app.database.sql import insert_unless_there
from sessions_app.models import Message, Session
from sessions_app.row_security import acting_for

NO_SESSION = "The person has no session to ask the question in."


@dataclass(frozen=True)
class ProbesInput(ProcessInput):
    """The number of probes in a run, and how many were met."""

    probes: int
    met: int


class RunProbes(Process[ProbesInput, None]):
    """Runs the probes of a person, or of one session."""

    name = "run_probes"
    title = "Run probes"
    makes = "answers to probes"
    lane = Lane.BULK
    is_upkeep = True

    def prepare(self, job: Job, progress: Progress) -> None:
        """Run the probes, one after the other, outside any transaction."""
        waiting = _probes_of(job).exclude(results__run_id=job.job_id)
        total = waiting.count()
        for done, _ in enumerate(ask(waiting, job.job_id, requested_by=job.requested_by), start=1):
            progress(done, total)

    def claim(self, job: Job) -> ProbesInput | Skipped:
        """Count the results."""
        results = ProbeResult.objects.filter(run_id=job.job_id, user=job.user_id)
        found = ProbesInput(None, results.count(), results.filter(is_met=True).count())
        return found if found.probes else Skipped("there are no probes")

    def think(self, input: ProbesInput, engine: None, progress: Progress) -> None:
        """Do nothing, because the process calls no model."""

    def commit(self, job: Job, input: ProbesInput, answer: None) -> None:
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"probes": input.probes, "met": input.met})


def _probes_of(job: Job) -> ProbeQuerySet:
    probes = Probe.objects.filter(user=job.user_id)
    return probes.filter(session=job.session) if job.session_id else probes


def ask(probes: ProbeQuerySet, run_id: uuid.UUID, *, requested_by: str) -> Iterator[ProbeResult]:
    """Run probes and save the results. Must not be called within a transaction.

    Args:
        probes: The probes, of any people.
        run_id: The id of the run, which has one result per probe.
        requested_by: key:…, operator:… or command.
    """
    for probe in list(probes.select_related("user", "session", "source_session").order_by("pk")):
        result = asked(probe, run_id, requested_by=requested_by)
        if result is not None:
            yield result


def asked(probe: Probe, run_id: uuid.UUID, *, requested_by: str) -> ProbeResult | None:
    """Run one probe and save the result. None if the probe or its person no longer exists."""
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
    """Return a probe's session, or else its person's latest session. None if there is none."""
    if probe.session_id:
        return probe.session
    return Session.objects.for_user(probe.user).order_by("-last_activity_at", "-id").first()


def evidence_of(probe: Probe) -> list[Message]:
    """Return the existing evidence turns, including archived ones."""
    if probe.source_session_id is None:
        return []
    turns = Message.objects.filter(session=probe.source_session_id, user=probe.user_id, retracted_at=None)
    return list(turns.exclude(kind=Message.Kind.PARTITION).filter(sequence__in=probe.evidence_sequences))
