"""A process that has other processes do most of the work: steps, each a job of its own.

The steps run one after the other, before the orchestrator's own claim, so that a failing one is seen and tried again by
itself. What the orchestrator does then is a claim, a call and a commit like any other: its `think` touches no database.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from moments_app.engines import Caller
from moments_app.engines.interface import EngineError
from moments_app.engines.together import Part
from moments_app.jobs.process import (
    Answer,
    CannotRun,
    Input,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Waits,
    process_named,
    session_of,
)
from moments_app.jobs.runner import recorder, run_job
from moments_app.models import Circuit, Job
from sessions_app.clock import database_now

BUSY_PAUSE = timedelta(seconds=5)  # while another worker is at one of the steps

Step = Callable[[Job], None]


class Orchestrator(Process[Input, Answer]):
    """Runs steps, then works like any process."""

    @abstractmethod
    def why_not(self, job: Job) -> str:
        """Return why the steps are not to be begun; blank when they are."""

    @abstractmethod
    def steps(self) -> Sequence[Step]:
        """Return the steps in order; each gets the orchestrator's job and calls `run_step`."""

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Run the steps.

        Raises:
            Waits: a step is not done yet.
            CannotRun: a step has failed or was cancelled.
        """
        if reason := self.why_not(job):
            return Skipped(reason)
        steps = self.steps()
        for number, step in enumerate(steps):
            progress(number, len(steps) + 1)
            step(job)
        return None

    def ask_together(self, job: Job, steps: Mapping[str, Mapping[str, Any]]) -> None:
        """Make one call for what several steps, and the orchestrator itself, would each ask the same model.

        The answers wait for the steps, which claim, judge and commit as ever. A step whose input is another by then, or
        whose part is no good, asks by itself, and so do all where the call fails.

        Args:
            job: of the orchestrator.
            steps: parameters by the names of their processes.
        """
        caller = self.caller(job)
        if caller is None or not caller.is_model or not settings.ENGINE.combines_calls:
            return
        parts = self._parts(job, steps, caller)
        if len(parts) > 1:
            connection.close()  # none is held while the engine thinks
            with suppress(EngineError):
                caller.open(recorder(job, None, caller.work)).ask_together(parts)

    def _parts(self, job: Job, steps: Mapping[str, Mapping[str, Any]], caller: Caller) -> list[Part]:
        """Return the calls that would be made of the orchestrator's model now; nothing is written by asking."""
        session = type(session_of(job)).objects.select_related("user").get(pk=session_of(job).pk)
        alike = [Job(process=name, session=session, force=True, params=dict(asked)) for name, asked in steps.items()]
        parts = []
        with suppress(CannotRun), transaction.atomic():
            for each in [*alike, job]:
                process = process_named(each.process)
                by = process.caller(each)
                claimed = process.claim(each) if by and by.name == caller.name else None
                part = process.part(claimed) if isinstance(claimed, ProcessInput) else None
                parts += [part] if part else []
            transaction.set_rollback(True)
        return parts

    def run_step(self, job: Job, process: str, **params: Any) -> str:
        """Run another process on the session of a job; return the status in which that ended.

        A step that has failed since the job was asked for is left to the next job.

        Args:
            job: of the orchestrator.
            process: name of the step's process.
            params: of the step's process.

        Raises:
            Waits: the step is being done elsewhere, or waits for another attempt.
            CannotRun: the step failed, or was cancelled.
        """
        failed = Job.objects.filter(process=process, session=job.session, status=Job.Status.FAILED)
        if before := failed.filter(finished_at__gte=job.queued_at).first():
            raise CannotRun(f"{process} failed, see job {before.job_id}.")
        asked = Job.objects.request(process, job.session, requested_by=self.name, force=True, params=params)
        Circuit.objects.hand_on_probe(job, asked)
        done = run_job(asked.job_id) or Job.objects.get(pk=asked.pk)
        if done.status == Job.Status.FAILED:
            raise CannotRun(f"{process} failed, see job {done.job_id}.")
        if done.is_cancelled:
            raise CannotRun(f"{process} was cancelled, see job {done.job_id}.")
        if done.status in Job.OPEN:
            until = max(done.run_after, database_now() + BUSY_PAUSE)
            raise Waits(until, f"Waiting for {process}, job {done.job_id}.", done.circuit)
        return done.status
