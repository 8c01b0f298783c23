"""Running a job: claim, think, commit.

The process that does the work is looked up by the name in the job's row; none is imported here. **Claim** takes the job
and reads its input in a short transaction. **Think** calls the engine with no transaction and no connection held.
**Commit** checks that nothing moved, writes everything and ends the job in one transaction. A crash between any two
leaves the data as it was and the job to be taken again.
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
from moments_app.models.engine_call import Pause
from moments_app.models.failure import ARCHIVE, DEFECT, MISSING_PROMPT
from sessions_app.clock import database_now
from sessions_app.daily_limits import Call, calling
from sessions_app.models import UserProfile
from sessions_app.retention.archive_files import ArchiveError

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

logger = structlog.get_logger(__name__)


def run_job(job_id: uuid.UUID | str) -> Job | None:
    """Run a job to an outcome, or back into the queue when the engine failed.

    Args:
        job_id: of a queued job.

    Returns:
        The job as it is afterwards; None when there was nothing to do: not due, taken by another, ended, unknown.
    """
    job = Job.objects.take(uuid.UUID(str(job_id)))
    return run_taken(job) if job else None


class TookTooLong(Exception):
    """A job worked for longer than any may."""


class Stopped(BaseException):
    """The worker has to end now; the job is put back, and the attempt does not count."""


def run_taken(job: Job) -> Job:
    """Run a job that this worker has claimed, to an outcome or back into the queue.

    Raises:
        Stopped: the worker has to end.
    """
    try:
        with calling(Call(job.counts_for)):
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
        connection.close()  # which may have been amid a statement
        job.postpone(database_now(), "Its worker was asked to end.", Job.Held.BACKOFF)
        raise
    except Exception as error:
        _end_attempt(job, process, error)


def _run_unless_kept_out(job: Job, process: AnyProcess) -> None:
    """Run the job; or put it back when its engine is to be left alone: it would be tried in vain, or cost too much."""
    caller = process.caller(job)
    if caller is None:
        return _claim_think_commit(job, process)
    circuit = Circuit.objects.open_of(caller)
    if circuit and not circuit.lets_in(job):
        return circuit.hold(job, process.alike(job))
    if not caller.is_free and (pause := EngineCall.objects.used_up(job)):
        return _put_off(job, process, pause)
    try:
        _claim_think_commit(job, process)
    finally:
        if circuit:
            circuit.give_back_probe(job)


def _put_off(job: Job, process: AnyProcess, pause: Pause) -> None:
    """Put a job off to another day, and with it those alike that are due and wait for the same."""
    job.postpone(pause.until, pause.reason, Job.Held.BUDGET)
    alike = process.alike(job)
    (alike.of_one(pause.subject) if pause.subject else alike).put_off(pause.until, pause.reason)


def _end_attempt(job: Job, process: AnyProcess, error: Exception) -> None:
    reason = str(error) if isinstance(error, CannotRun | EngineError | ArchiveError) else _described(error)
    failure = _failure(job, process, error, reason)
    with transaction.atomic():
        if job.is_claimed():
            process.failed(job, reason)
            Job.objects.filter(pk=job.pk).update(failure=failure)
        circuit = _opened(job, process, error)
        if isinstance(error, CannotRun) or (circuit and circuit.gives_up(job)):
            job.fail(reason)
        elif circuit:
            circuit.hold(job, process.alike(job), wait=job.backoff)
        else:
            after = getattr(error, "retry_after", None) or 0
            job.retry_later(reason, wait=timedelta(seconds=after))


def _failure(job: Job, process: AnyProcess, error: Exception, reason: str) -> FailureGroup | None:
    """Return the cause of an attempt that failed; None for a job that is gone. A call of an engine has counted it."""
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
    """Return the open circuit that holds a job whose engine has failed."""
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
            # No connection is held while the engine thinks: a slow model must not use up the database's. Without a
            # model nothing is waited for, and a new connection costs as much as all the statements of a small job.
            connection.close()
        answer = process.think(input, engine, progress)
    with transaction.atomic():
        _hold_person(job)
        process.commit(job, input, answer)


def _input_of(job: Job, process: AnyProcess, progress: Progress) -> Any:
    """Return the input of a run; `Skipped` when there is nothing to do: the job has ended then."""
    unwanted = process.prepare(job, progress)
    with transaction.atomic():
        _hold_person(job)
        input = unwanted or process.claim(job)
        if isinstance(input, Skipped):
            job.skip(input.reason)  # with what the claim has locked: work that comes to be due asks for another job
        return input


def _hold_person(job: Job) -> None:
    """Keep the person of a job from being erased until the transaction ends.

    Raises:
        ClaimLost: they have been.
    """
    if job.user_id is not None and not UserProfile.objects.hold([job.user_id]):
        raise ClaimLost


def recorder(job: Job, prompt_for: Callable[[str], PromptVersion | None], work: str) -> Callable[[CallRecord], None]:
    """Return a function that puts the calls of a job on record.

    Args:
        job: they are made for.
        prompt_for: returns the version that calls for a purpose use; None for none.
        work: kind of the calls.
    """

    def record(call: CallRecord) -> None:
        EngineCall.objects.keep(call, job=job, prompt_version=prompt_for(call.purpose))
        job.left_out.extend(call.left_out)
        if not call.is_part:
            Circuit.objects.note(call, work, job=job)
        connection.close()

    return record


@contextmanager
def _heartbeat(job: Job) -> Iterator[Progress]:
    """Say every few seconds, from a thread with its own connection, that the job is being worked on."""
    done = threading.Event()
    state = (0, 0)

    def progress(finished: int, total: int) -> None:
        nonlocal state
        state = (finished, total)

    def beat() -> None:
        while not done.wait(settings.JOBS.heartbeat_seconds):
            try:
                job.beat(*state)
            except Exception as error:  # the database may be away for a moment; the next beat tells
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
    """Say what went wrong, without the text of the error: that may quote a message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    logger.error("job error", error=type(error).__name__, where=f"{frame.filename}:{frame.lineno}")
    return f"{type(error).__name__} in {frame.name}, line {frame.lineno} of {frame.filename.rsplit('/', 2)[-1]}"
