"""Running a job: claim, think, commit.

**Claim** takes the job and reads its input in a short transaction. **Think** calls the engine with no transaction and
no connection held. **Commit** checks that nothing moved, writes everything and ends the job in one transaction. A crash
between any two leaves the data as it was and the job to be taken again.
"""

import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import structlog
from django.conf import settings
from django.db import connection, transaction

from moments_app.engines import Caller
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.jobs.process import CannotRun, ClaimLost, Moved, Skipped, Waits
from moments_app.models import EngineCall, Job
from moments_app.moments import build as build_moments
from moments_app.moments import rebuild as rebuild_moments
from moments_app.moments import rebuild_profile
from moments_app.recall import count_words, embed
from moments_app.sessions import digest as digest_session
from moments_app.sessions import settle
from moments_app.streams import consolidate
from moments_app.streams import form as form_memories
from moments_app.summaries import roll as roll_summary
from sessions_app.models import UserProfile

logger = structlog.get_logger(__name__)

Progress = Callable[[int, int], None]


class Process(Protocol):
    """What the module of a process that is run as a job offers."""

    @property
    def NAME(self) -> str: ...  # noqa: N802

    def caller(self, job: Job) -> Caller | None:
        """Who is called, if anybody."""

    def claim(self, job: Job) -> Any:
        """Reads the input, inside a transaction; `Skipped` when there is nothing to do."""

    def think(self, work: Any, engine: Any, progress: Progress) -> Any:
        """Calls it, outside any transaction."""

    def commit(self, job: Job, work: Any, answer: Any) -> None:
        """Writes everything and completes the job, inside a transaction."""

    def failed(self, job: Job, error: str) -> None:
        """Called when an attempt came to nothing, before the job is put back or failed."""


_MODULES: tuple[Process, ...] = (
    build_moments,
    roll_summary,
    form_memories,
    consolidate,
    digest_session,
    settle,
    count_words,
    embed,
    rebuild_moments,
    rebuild_profile,
)
PROCESSES = {process.NAME: process for process in _MODULES}


def run_job(job_id: uuid.UUID | str) -> Job | None:
    """Runs a job to an outcome, or back into the queue when the engine failed.

    Args:
        job_id: of a queued job.

    Returns:
        The job as it is afterwards; None when there was nothing to do: not due, taken by another, ended, unknown.
    """
    job = Job.objects.take(uuid.UUID(str(job_id)))
    if job is None:
        return None
    process = PROCESSES[job.process]
    try:
        if not _postponed(job, process):
            _claim_think_commit(job, process)
    except ClaimLost:
        pass
    except Moved as error:
        job.retry_later(str(error), wait=timedelta(0))
    except Waits as error:
        job.postpone(error.until, str(error))
    except Exception as error:
        _came_to_nothing(job, process, error)
    job = Job.objects.filter(pk=job.pk).first() or job
    logger.info("job run", job_id=str(job.job_id), process=job.process, status=job.status, attempts=job.attempts)
    return job


def _came_to_nothing(job: Job, process: Process, error: Exception) -> None:
    told = str(error) if isinstance(error, CannotRun | EngineError) else _described(error)
    with transaction.atomic():
        if job.is_claimed():
            process.failed(job, told)
        if isinstance(error, CannotRun):
            job.fail(told)
        else:
            after = getattr(error, "retry_after", None) or 0
            job.retry_later(told, wait=timedelta(seconds=after))


def _claim_think_commit(job: Job, process: Process) -> None:
    with transaction.atomic():
        _hold_person(job)
        work = process.claim(job)
        if isinstance(work, Skipped):
            return job.skip(work.reason)
    # No connection is held while the engine thinks: a slow model must not use up the database's.
    connection.close()
    with _heartbeat(job) as progress:
        caller = process.caller(job)
        engine = caller.open(_recorder(job, work)) if caller else None
        answer = process.think(work, engine, progress)
    with transaction.atomic():
        _hold_person(job)
        process.commit(job, work, answer)


def _hold_person(job: Job) -> None:
    """Keeps the person a job is about from being erased until the transaction ends.

    Raises:
        ClaimLost: they have been.
    """
    if job.user_id is not None and not UserProfile.objects.hold([job.user_id]):
        raise ClaimLost


def _postponed(job: Job, process: Process) -> bool:
    """Puts the job back when the engine is to be left alone: it would be tried in vain, or cost too much."""
    caller = process.caller(job)
    pause = EngineCall.objects.pause_of(caller.name) if caller else None
    if pause is None:
        return False
    job.postpone(pause.until, pause.reason)
    return True


def _recorder(job: Job, work: Any) -> Callable[[CallRecord], None]:
    def record(call: CallRecord) -> None:
        EngineCall.objects.keep(call, job=job, prompt_version=work.prompt_version)
        connection.close()

    return record


@contextmanager
def _heartbeat(job: Job) -> Iterator[Progress]:
    """Says every few seconds, from a thread with its own connection, that the job is being worked on."""
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
    """What went wrong, without the error's own text: that may quote a message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    logger.error("job error", error=type(error).__name__, where=f"{frame.filename}:{frame.lineno}")
    return f"{type(error).__name__} in {frame.name}, line {frame.lineno} of {frame.filename.rsplit('/', 2)[-1]}"
