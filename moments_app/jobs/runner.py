"""Run a job: claim, think, commit.

The process is looked up by the name in the job's row, so this module imports no process. **Claim** assigns the job to
the worker and reads its input in a short transaction. **Think** calls the engine without holding a transaction or a
connection. **Commit** checks that the data hasn't changed, writes everything and ends the job, in one transaction. If
the worker dies between two steps, no data has changed and another worker can claim the job.
"""

import re
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from moments_app.engines.interface import CallRecord, EngineError
from moments_app.jobs.process import (
    AnyProcess,
    CannotRun,
    ClaimLost,
    Moved,
    Progress,
    Skipped,
    UnknownProcess,
    Waits,
    process_named,
)
from moments_app.models import Circuit, EngineCall, FailureGroup, Job, PromptVersion
from moments_app.models.circuit import OUTAGE
from moments_app.models.engine_call import ARCHIVE, DEFECT, MISSING_PROMPT, Pause
from sessions_app.clock import database_now
from sessions_app.daily_limits import Call, counting
from sessions_app.models import UserProfile
from sessions_app.retention.archive_files import ArchiveError

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

logger = structlog.get_logger(__name__)


def run_job(job_id: uuid.UUID | str) -> Job | None:
    """Claim a job and run it until it ends or is queued again.

    Args:
        job_id: the id of a queued job.

    Returns:
        The updated job, or None if it could not be claimed: it is not due, already claimed, ended or unknown.
    """
    job = Job.objects.claim(uuid.UUID(str(job_id)))
    return run_taken(job) if job else None


class TookTooLong(Exception):
    """A job ran longer than the limit."""


class Stopped(BaseException):
    """The worker must stop now. Its job is queued again without counting the attempt."""


def run_taken(job: Job) -> Job:
    """Run a claimed job until it ends or is queued again.

    Raises:
        Stopped: the worker must stop.
    """
    try:
        with counting(Call(job.counts_for)):
            _run_with(process_named(job.process), job)
    except UnknownProcess as error:  # a worker of a newer release may know it
        job.retry_later(str(error))
    job = Job.objects.filter(pk=job.pk).first() or job
    logger.info("job run", job_id=str(job.job_id), process=job.process, status=job.status, attempts=job.attempts)
    return job


def _run_with(process: AnyProcess, job: Job) -> None:
    try:
        _run_unless_kept_out(job, process)
    except ClaimLost:
        pass
    except Moved as error:
        job.retry_later(str(error), wait=timedelta(0))
    except Waits as error:
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


def _run_unless_kept_out(job: Job, process: AnyProcess) -> None:
    """Run the job, or postpone it if its engine's circuit is open or a daily limit is used up."""
    caller = process.caller(job)
    if caller is None:
        return _claim_think_commit(job, process)
    circuit = Circuit.objects.open_of(caller)
    if circuit and not circuit.allows(job):
        return circuit.hold(job, process.alike(job))
    if not caller.is_free and (pause := EngineCall.objects.reached_limit(job)):
        return _put_off(job, process, pause)
    try:
        _claim_think_commit(job, process)
    finally:
        if circuit:
            circuit.release_probe(job)


def _put_off(job: Job, process: AnyProcess, pause: Pause) -> None:
    """Postpone a job to another day, and also all due jobs affected by the same limit."""
    job.postpone(pause.until, pause.reason, Job.Held.BUDGET)
    alike = process.alike(job)
    (alike.limited_by(pause.subject) if pause.subject else alike).postpone(pause.until, pause.reason)


def _end_attempt(job: Job, process: AnyProcess, error: Exception) -> None:
    reason = str(error) if isinstance(error, CannotRun | EngineError | ArchiveError) else _described(error)
    failure = _failure(job, process, error, reason)
    with transaction.atomic():
        if job.is_claimed():
            process.failed(job, reason)
            Job.objects.filter(pk=job.pk).update(failure=failure)
        circuit = _opened(job, process, error)
        if isinstance(error, CannotRun) or (circuit and circuit.should_fail(job)):
            job.fail(reason)
        elif circuit:
            circuit.hold(job, process.alike(job), wait=job.backoff)
        else:
            after = getattr(error, "retry_after", None) or 0
            job.retry_later(reason, wait=timedelta(seconds=after))


def _failure(job: Job, process: AnyProcess, error: Exception, reason: str) -> FailureGroup | None:
    """Return the failure group of a failed attempt, and count the failure. Return None if the job was deleted.

    Failed calls to an engine are already counted when they are recorded.
    """
    if not Job.objects.filter(pk=job.pk).exists():
        return None
    caller = process.caller(job)
    if isinstance(error, EngineError):
        failure = FailureGroup.objects.find(job, job.process, error.kind, engine=caller.name if caller else "")
        is_counted = failure.count > 0
    else:
        kinds = {CannotRun: MISSING_PROMPT, ArchiveError: ARCHIVE}
        kind = next((kind for cause, kind in kinds.items() if isinstance(error, cause)), DEFECT)
        failure = FailureGroup.objects.find(job, job.process, kind, place=_UUID.sub("…", reason))
        is_counted = False
    if not is_counted:
        failure.add(reason)
    return failure


def _opened(job: Job, process: AnyProcess, error: Exception) -> Circuit | None:
    """Return the open circuit of the engine whose call failed, if it holds this job."""
    caller = process.caller(job) if isinstance(error, EngineError) and error.kind in OUTAGE else None
    circuit = Circuit.objects.open_of(caller) if caller else None
    return circuit if circuit and circuit.holds(job) else None


def _claim_think_commit(job: Job, process: AnyProcess) -> None:
    with _heartbeat(job) as progress:
        input = _input_of(job, process, progress)
        if isinstance(input, Skipped):
            return
        caller = process.caller(job)
        engine = caller.open(recorder(job, input.prompt_for, caller.work)) if caller else None
        if caller and caller.is_model:
            # Close the connection during a model call, because slow models would use up the database's connections.
            # Without a model there is no wait, and a new connection costs as much as all the statements of a small job.
            connection.close()
        answer = process.think(input, engine, progress)
    with transaction.atomic():
        _hold_person(job)
        process.commit(job, input, answer)


def _input_of(job: Job, process: AnyProcess, progress: Progress) -> Any:
    """Return the input of a run. If there is nothing to do, skip the job and return `Skipped`."""
    unwanted = process.prepare(job, progress)
    with transaction.atomic():
        _hold_person(job)
        input = unwanted or process.claim(job)
        if isinstance(input, Skipped):
            job.skip(input.reason)  # in the claim's transaction, so that later work queues another job
        return input


def _hold_person(job: Job) -> None:
    """Lock the job's person against erasure until the transaction ends.

    Raises:
        ClaimLost: the person was erased.
    """
    if job.user_id is not None and not UserProfile.objects.hold([job.user_id]):
        raise ClaimLost


def recorder(job: Job, prompt_for: Callable[[str], PromptVersion | None], work: str) -> Callable[[CallRecord], None]:
    """Return a function that records a job's calls to the engine.

    Args:
        job: the job.
        prompt_for: returns the prompt version for a purpose, or None.
        work: the kind of work, a `Circuit.Work`.
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


def _described(error: Exception) -> str:
    """Return the type and place of an error, without its message, which may quote a user."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    logger.error("job error", error=type(error).__name__, where=f"{frame.filename}:{frame.lineno}")
    return f"{type(error).__name__} in {frame.name}, line {frame.lineno} of {frame.filename.rsplit('/', 2)[-1]}"
