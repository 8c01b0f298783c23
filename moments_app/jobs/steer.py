"""Retry the failed and waiting jobs of an incident (`retry_all`, `try_one`), and cancel jobs (`cancel`)."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from moments_app.jobs.process import UnknownProcess, process_named
from moments_app.models import Circuit, Job
from moments_app.models.circuit import NotOpen
from moments_app.models.job import CannotChange, JobQuerySet
from sessions_app.models import Session
from sessions_app.models.event import named_actor

AT_ONCE = 500  # maximum failed jobs per call


@dataclass(frozen=True)
class Retried:
    """The result of a retry.

    Args:
        jobs: the number of jobs that are due now.
        not_needed: the number of failed jobs that are not retried, because another open job does their work.
        left: the number of failed jobs that were not processed and need another call.
    """

    jobs: int
    not_needed: int
    left: int

    def __str__(self) -> str:
        told = [f"{self.jobs:,} job{'' if self.jobs == 1 else 's'} due now"]
        if self.not_needed:
            told.append(f"{self.not_needed:,} not needed, because another job does the same work")
        if self.left:
            told.append(f"{self.left:,} not retried yet; press Retry all again")
        return "; ".join(told)


def try_one(jobs: JobQuerySet) -> Job | None:
    """Make one job due now, preferably a failed one, to test whether the cause of a failure is gone.

    Return None if there is no such job.
    """
    for job in jobs.filter(status=Job.Status.FAILED).order_by("-id")[:AT_ONCE]:
        with suppress(CannotChange):
            job.restart()
            return job
    waiting = jobs.later().order_by("id").first()
    if waiting:
        Job.objects.filter(pk=waiting.pk).update(run_after=timezone.now())
    return waiting


def retry_all(jobs: JobQuerySet, circuits: Iterable[Circuit] = (), *, actor: str) -> Retried:
    """Queue failed jobs again, make waiting jobs due now, and make the probes of open circuits due.

    Args:
        circuits: the open circuits that hold these jobs.
    """
    failed = jobs.filter(status=Job.Status.FAILED)
    retried, refused = 0, 0
    for job in failed.order_by("id")[:AT_ONCE]:
        try:
            job.restart()
            retried += 1
        except CannotChange:
            refused += 1
    retried += jobs.later().update(run_after=timezone.now())
    for circuit in circuits:
        with suppress(NotOpen):
            circuit.try_now(actor)
    return Retried(retried, refused, max(0, failed.count() - refused))


@transaction.atomic
def cancel(job: Job, *, actor: str) -> None:
    """Cancel the job, and undo what it has started.

    If an engine is still working for the job, its commit finds that the claim is lost and writes nothing. A canceled
    job can be retried. Thresholds and schedules may queue the same work again when it is due.

    Args:
        job: a queued or running job.
        actor: the operator, as `operator:…`.

    Raises:
        CannotChange: the job has ended. The message includes the state.
    """
    if job.session_id is not None:  # lock the session before the job, as in a commit
        Session.objects.locked().filter(pk=job.session_id).first()
    job.cancel(actor=actor)
    with suppress(UnknownProcess):  # only a version that has this process can undo the work
        process_named(job.process).failed(job, f"Cancelled by {named_actor(actor)}.")
