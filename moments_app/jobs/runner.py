"""Run a job in three steps, and retry or cancel jobs.

**Claim** assigns the job to the worker and reads its input in a short transaction. **Think** calls the engine without
holding a transaction or a connection. **Commit** checks that the data hasn't changed, writes everything and ends the
job, in one transaction. If the worker dies between two steps, no data has changed and another worker can claim the job.
"""

import re
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from moments_app.engines.interface import CallRecord, EngineError
from moments_app.jobs.process import (
    AnyProcess,
    CannotRun,
    ClaimLost,
    InputChanged,
    PostponeJob,
    Progress,
    Skipped,
    UnknownProcess,
    process_named,
)
from moments_app.models import Circuit, EngineCall, FailureGroup, Job, PromptVersion
from moments_app.models.circuit import OUTAGE, NotOpen
from moments_app.models.engine_call import ARCHIVE, DEFECT, MISSING_PROMPT, Pause
from moments_app.models.job import CannotChange, JobQuerySet
from sessions_app.clock import database_now
from sessions_app.models import ApiKey, Session, UserProfile
from sessions_app.models.daily_limit import Call, counting
from sessions_app.models.event import named_actor
from sessions_app.retention.archive_files import ArchiveError

RETRY_BATCH = 500  # maximum failed jobs per call of `retry_all`
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

logger = structlog.get_logger(__name__)


def run_job(job_id: uuid.UUID | str) -> Job | None:
    """Claim a queued job, run it, and return it. Return None if it is not due, already claimed, ended or unknown."""
    job = Job.objects.claim(uuid.UUID(str(job_id)))
    return run_claimed(job) if job else None


class JobTimeout(Exception):
    pass


class Stopped(BaseException):
    """The worker must stop now. Its job is queued again without counting the attempt."""


def run_claimed(job: Job) -> Job:
    """Run a claimed job until it ends or is queued again. May raise `Stopped`."""
    try:
        with counting(Call(job.limit_subjects)):
            _run_with(process_named(job.process), job)
    except UnknownProcess as error:  # a worker of a newer release may have this process
        job.retry_later(str(error))
    job = Job.objects.filter(pk=job.pk).first() or job
    logger.info("job run", job_id=str(job.job_id), process=job.process, status=job.status, attempts=job.attempts)
    return job


def _run_with(process: AnyProcess, job: Job) -> None:
    try:
        _run_if_allowed(job, process)
    except ClaimLost:
        pass
    except InputChanged as error:
        job.retry_later(str(error), wait=timedelta(0))
    except PostponeJob as error:
        if error.circuit:
            error.circuit.hold(job, Job.objects.none())
        else:
            job.postpone(error.until, str(error), error.held_by)
    except Stopped:
        connection.close()  # a statement may have been interrupted
        job.postpone(database_now(), "Its worker was asked to end.", Job.Held.BACKOFF)
        raise
    except Exception as error:
        _end_attempt(job, process, error)


def _run_if_allowed(job: Job, process: AnyProcess) -> None:
    """Run the job, or postpone it if its engine's circuit is open or a daily limit is used up."""
    factory = process.engine_factory(job)
    if factory is None or not factory.is_model:
        return _claim_think_commit(job, process)
    circuit = Circuit.objects.open_for(factory)
    if circuit and not circuit.allows(job):
        return circuit.hold(job, process.jobs_of_same_engine(job))
    if not factory.is_free and (pause := EngineCall.objects.reached_limit(job)):
        return _postpone_to_another_day(job, process, pause)
    try:
        _claim_think_commit(job, process)
    finally:
        if circuit:
            circuit.release_probe(job)


def _postpone_to_another_day(job: Job, process: AnyProcess, pause: Pause) -> None:
    """Postpone the job, and all due jobs affected by the same limit."""
    job.postpone(pause.until, pause.reason, Job.Held.BUDGET)
    affected = process.jobs_of_same_engine(job)
    (affected.limited_by(pause.subject) if pause.subject else affected).postpone(pause.until, pause.reason)


def _end_attempt(job: Job, process: AnyProcess, error: Exception) -> None:
    reason = str(error) if isinstance(error, CannotRun | EngineError | ArchiveError) else _type_and_place(error)
    failure = _failure(job, process, error, reason)
    with transaction.atomic():
        if job.is_claimed():
            process.failed(job, reason)
            Job.objects.filter(pk=job.pk).update(failure=failure)
        circuit = _open_circuit(job, process, error)
        if isinstance(error, CannotRun) or (circuit and circuit.should_fail(job)):
            job.fail(reason)
        elif circuit:
            circuit.hold(job, process.jobs_of_same_engine(job), wait=job.backoff)
        else:
            after = getattr(error, "retry_after", None) or 0
            job.retry_later(reason, wait=timedelta(seconds=after))


def _failure(job: Job, process: AnyProcess, error: Exception, reason: str) -> FailureGroup | None:
    """Return the failure group of a failed attempt, and count the failure. Return None if the job was deleted."""
    if not Job.objects.filter(pk=job.pk).exists():
        return None
    factory = process.engine_factory(job)
    if isinstance(error, EngineError):
        failure = FailureGroup.objects.find(job, job.process, error.kind, engine=factory.name if factory else "")
        is_counted = failure.count > 0  # failed calls are counted when they are recorded
    else:
        kinds = {CannotRun: MISSING_PROMPT, ArchiveError: ARCHIVE}
        kind = next((kind for cause, kind in kinds.items() if isinstance(error, cause)), DEFECT)
        failure = FailureGroup.objects.find(job, job.process, kind, place=_UUID.sub("…", reason))
        is_counted = False
    if not is_counted:
        failure.add(reason)
    return failure


def _open_circuit(job: Job, process: AnyProcess, error: Exception) -> Circuit | None:
    """Return the open circuit of the engine whose call failed, if it holds this job."""
    factory = process.engine_factory(job) if isinstance(error, EngineError) and error.kind in OUTAGE else None
    circuit = Circuit.objects.open_for(factory) if factory else None
    return circuit if circuit and circuit.holds(job) else None


def _claim_think_commit(job: Job, process: AnyProcess) -> None:
    with _heartbeat(job) as progress:
        input = _input_of(job, process, progress)
        if isinstance(input, Skipped):
            return
        factory = process.engine_factory(job)
        engine = factory.open(recorder(job, input.prompt_for, factory.work)) if factory else None
        if factory and factory.is_model:
            # Close the connection during a model call, because slow models would use up the database's connections.
            # Without a model there is no wait, and a new connection costs as much as all the statements of a small job.
            connection.close()
        answer = process.think(input, engine, progress)
    with transaction.atomic():
        _hold_person(job)
        with counting(_call_for_requested_jobs(job)):
            process.commit(job, input, answer)


def _input_of(job: Job, process: AnyProcess, progress: Progress) -> Any:
    unwanted = process.prepare(job, progress)
    with transaction.atomic():
        _hold_person(job)
        input = unwanted or process.claim(job)
        if isinstance(input, Skipped):
            job.skip(input.reason)  # in the claim's transaction, so that work that becomes due later queues another job
        return input


def _hold_person(job: Job) -> None:
    """Lock the job's person against erasure until the transaction ends.

    Raises:
        ClaimLost: the person was erased.
    """
    if job.user_id is not None and not UserProfile.objects.protect([job.user_id]):
        raise ClaimLost


def _call_for_requested_jobs(job: Job) -> Call:
    """Return the call that counts the jobs that a commit requests. Clear the job's key if it has been deleted."""
    if job.key_id is not None and not ApiKey.objects.filter(pk=job.key_id).exists():
        job.key = None
    return Call(job.limit_subjects)


def recorder(job: Job, prompt_for: Callable[[str], PromptVersion | None], work: str) -> Callable[[CallRecord], None]:
    """Return a function that records a job's calls to the engine.

    Args:
        prompt_for: returns the prompt version for a purpose, or None.
        work: a `Circuit.Work`.
    """

    def record(call: CallRecord) -> None:
        EngineCall.objects.record(call, job=job, prompt_version=prompt_for(call.purpose))
        job.left_out.extend(call.left_out)
        if not call.is_part:
            Circuit.objects.record(call, work, job=job)
        connection.close()

    return record


@contextmanager
def _heartbeat(job: Job) -> Iterator[Progress]:
    """Send heartbeats from a thread while the job runs. Yield a function that sets the progress."""
    done = threading.Event()
    state = (0, 0)

    def progress(finished: int, total: int) -> None:
        nonlocal state
        state = (finished, total)

    def beat() -> None:
        while not done.wait(settings.JOBS.heartbeat_seconds):
            try:
                job.record_heartbeat(*state)
            except Exception as error:  # the database may be down for a moment; the next heartbeat retries
                logger.warning("heartbeat failed", job_id=str(job.job_id), error=type(error).__name__)
            finally:
                connection.close()

    thread = threading.Thread(target=beat, name=f"heartbeat-{job.job_id}", daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        done.set()
        thread.join()


def _type_and_place(error: Exception) -> str:
    """Return the type and place of an error, without its message, which may quote a user."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    logger.error("job error", error=type(error).__name__, where=f"{frame.filename}:{frame.lineno}")
    return f"{type(error).__name__} in {frame.name}, line {frame.lineno} of {frame.filename.rsplit('/', 2)[-1]}"


# --- retry and cancel ---


@dataclass(frozen=True)
class RetryResult:
    jobs: int  # number of jobs that are due now
    not_needed: int  # number of failed jobs that are not retried, because another open job does their work
    left: int  # number of failed jobs to retry with another call of `retry_all`

    def __str__(self) -> str:
        parts = [f"{self.jobs:,} job{'' if self.jobs == 1 else 's'} due now"]
        if self.not_needed:
            parts.append(f"{self.not_needed:,} not needed, because another job does the same work")
        if self.left:
            parts.append(f"{self.left:,} not retried yet; press Retry all again")
        return "; ".join(parts)


def retry_one(jobs: JobQuerySet) -> Job | None:
    """Make one job due now, preferably a failed one, to test whether the cause of a failure is gone."""
    for job in jobs.filter(status=Job.Status.FAILED).order_by("-id")[:RETRY_BATCH]:
        with suppress(CannotChange):
            job.restart()
            return job
    waiting = jobs.later().order_by("id").first()
    if waiting:
        Job.objects.filter(pk=waiting.pk).update(run_after=timezone.now())
    return waiting


def retry_all(jobs: JobQuerySet, circuits: Iterable[Circuit] = (), *, actor: str) -> RetryResult:
    """Queue failed jobs again, make waiting jobs due now, and make the probes of open circuits due."""
    failed = jobs.filter(status=Job.Status.FAILED)
    retried, refused = 0, 0
    for job in failed.order_by("id")[:RETRY_BATCH]:
        try:
            job.restart()
            retried += 1
        except CannotChange:
            refused += 1
    retried += jobs.later().update(run_after=timezone.now())
    for circuit in circuits:
        with suppress(NotOpen):
            circuit.try_now(actor)
    return RetryResult(retried, refused, max(0, failed.count() - refused))


@transaction.atomic
def cancel(job: Job, *, actor: str) -> None:
    """Cancel the job, and undo what it has started.

    If an engine is still working for the job, its commit finds that the claim is lost and writes nothing. A canceled
    job can be retried. Thresholds and schedules may queue the same work again when it is due.

    Args:
        actor: the operator, as `operator:…`.

    Raises:
        CannotChange: the job has ended.
    """
    if job.session_id is not None:  # lock the session before the job, as in a commit
        Session.objects.locked().filter(pk=job.session_id).first()
    job.cancel(actor=actor)
    with suppress(UnknownProcess):  # only a release that has this process can undo the work
        process_named(job.process).failed(job, f"Cancelled by {named_actor(actor)}.")
