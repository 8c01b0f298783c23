"""`retry_all` and `try_one`: rerun the jobs of an incident that failed or wait for a retry."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from django.utils import timezone

from moments_app.models import Circuit, Job
from moments_app.models.circuit import NotOpen
from moments_app.models.job import CannotChange, JobQuerySet

AT_ONCE = 500  # maximum failed jobs that one call queues again


@dataclass(frozen=True)
class Retried:
    """The result of a retry.

    Args:
        jobs: jobs that were queued again or no longer wait for their next attempt.
        not_needed: failed jobs whose work another open job does.
        left: failed jobs that are left for another call.
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
    """Run one job again at once, preferably a failed one, to test whether the cause is gone.

    Return None if there is none.
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
    """Queue failed jobs again, make waiting retries due, and send a probe through open circuits.

    Args:
        jobs: the jobs.
        circuits: the open circuits that hold them.
        actor: who requested it.
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
