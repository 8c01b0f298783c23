"""Test a prompt with probes: check whether their answers would reach the context if the engine's result were saved.

The process's own commit runs with each result in a transaction that is rolled back, and the contexts are built within
it. So they have the same content as after a real commit. No vectors are computed for new items, so these are found only
by their words.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, transaction

from memory_extras.lab.models import Probe
from memory_extras.lab.probes.run import NO_SESSION, Measure, evidence_of, measure, probe_session
from memory_extras.lab.trials.try_prompt import Trial
from moments_app.context.assemble import ContextRequest, preview
from moments_app.context.budget import BudgetTooSmall
from moments_app.jobs.process import AnyProcess, ClaimLost, InputChanged, Skipped, process_named, session_of
from moments_app.models import Job, MemoryStream
from moments_app.recall.query import recall_request_for
from moments_app.recall.request import RecallRequest
from sessions_app.models import Session

MAX_PROBES = 10  # maximum number of probes; the session is locked while their contexts are built
CONFLICT = "The result conflicts with current memory, so no context could be built from it."


@dataclass(frozen=True)
class TriedProbe:
    """A probe, and the measures of its contexts, one per result of the trial. None where the engine failed."""

    probe: Probe
    measures: list[Measure | None]


def try_probes(trial: Trial, subject: Session | MemoryStream) -> list[TriedProbe]:
    """Return the measures of a subject's probes for each result of a trial.

    Writes nothing. Call it outside any transaction.
    """
    probes = _probes_of(subject)
    recalls = [_recall(probe) for probe in probes]
    columns = [_measures(trial, answer.answer, subject, probes, recalls) for answer in trial.answers] if probes else []
    return [TriedProbe(probe, [column[row] for column in columns]) for row, probe in enumerate(probes)]


def _probes_of(subject: Session | MemoryStream) -> list[Probe]:
    if isinstance(subject, Session):
        probes = Probe.objects.about(subject)
    else:
        probes = Probe.objects.filter(user=subject.user_id)
    return list(probes.select_related("user", "session", "source_session").newest_first()[:MAX_PROBES])


def _recall(probe: Probe) -> RecallRequest | None:
    """Return the recall request of a probe. Its question is embedded before any transaction."""
    session = probe_session(probe)
    if session is None:
        return None
    named = probe.user.user_id, session.session_id, probe.question
    return recall_request_for(*named, application=probe.user.application_id, retrieval="query")


def _measures(
    trial: Trial,
    answer: Any,
    subject: Session | MemoryStream,
    probes: Sequence[Probe],
    recalls: Sequence[RecallRequest | None],
) -> list[Measure | None]:
    if answer is None:  # the engine failed
        return [None] * len(probes)
    try:
        with _as_if_committed(trial, answer, subject):
            return [_measure(probe, recall) for probe, recall in zip(probes, recalls, strict=True)]
    except (InputChanged, ClaimLost, DatabaseError):
        return [Measure(problem=CONFLICT)] * len(probes)


@contextmanager
def _as_if_committed(trial: Trial, answer: Any, subject: Session | MemoryStream) -> Iterator[None]:
    process = process_named(trial.process)
    with transaction.atomic():
        job = _running_job(process.name, subject)
        if _version_of(subject) != _version_of(job.stream or session_of(job)):
            raise InputChanged("The session changed during the trial. Try again.")
        if trial.is_again:
            _rewind(process, job)
        input = process.claim(job)  # the claim may start changes that the commit completes
        if isinstance(input, Skipped):
            raise InputChanged(input.reason)
        process.commit(job, input.for_first_call(), answer)
        yield
        transaction.set_rollback(True)


def _version_of(subject: Session | MemoryStream) -> tuple[object, ...]:
    """Return values that differ between two reads if the engine's input may have changed in between."""
    if isinstance(subject, Session):
        return subject.last_sequence, subject.retraction_count
    return (subject.last_updated_at,)


def _rewind(process: AnyProcess, job: Job) -> None:
    """Undo the process's last run, and save the session, because the commit reads it from the database."""
    process.rewind(job)
    if job.session:
        job.session.save(update_fields=["last_moment_message_idx", "live_from_sequence"])


def _running_job(name: str, subject: Session | MemoryStream) -> Job:
    """Return a claimed job, as a worker would receive it. Mark open jobs of the process as skipped."""
    about = {"stream": subject} if isinstance(subject, MemoryStream) else {"session": subject}
    Job.objects.open().filter(process=name, **about).update(status=Job.Status.SKIPPED)
    job = Job.objects.create(process=name, user=subject.user, force=True, requested_by="trial", **about)
    taken = Job.objects.claim(job.job_id)
    assert taken is not None  # the job is due, and no worker can see it before the rollback
    return taken


def _measure(probe: Probe, recall: RecallRequest | None) -> Measure:
    session = probe_session(probe)
    if session is None:
        return Measure(problem=NO_SESSION)
    request = ContextRequest(query=probe.question, recall=recall, is_trial=True)
    try:
        envelope = preview(probe.user, session.session_id, request)
    except BudgetTooSmall as error:
        return Measure(problem=str(error))
    assert envelope is not None  # the session exists
    return measure(probe, evidence_of(probe), envelope)
