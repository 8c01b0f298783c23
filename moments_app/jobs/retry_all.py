"""`retry_all` and `try_one`: run jobs again that failed or wait because of some failures."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from django.utils import timezone

from moments_app.models import Circuit, FailureGroup, Job
from moments_app.models.job import CannotChange

AT_ONCE = 500  # failed jobs that are queued again by one call


@dataclass(frozen=True)
class Retried:
    """What came of it.

    Args:
        jobs: that are queued again, or no longer wait for their next attempt.
        not_needed: failed ones about whose work another job is open.
        left: that have failed and are left for another call.
    """

    jobs: int
    not_needed: int
    left: int

    def __str__(self) -> str:
        told = [f"{self.jobs:,} job{'' if self.jobs == 1 else 's'} due now"]
        if self.not_needed:
            told.append(f"{self.not_needed:,} not needed, because another job does the same work")
        if self.left:
            told.append(f"{self.left:,} left; press Retry all again")
        return "; ".join(told)


def try_one(failures: Collection[FailureGroup]) -> Job | None:
    """Run one job again at once, a failed one if possible, to test whether the cause is gone; None: there is none."""
    for job in Job.objects.filter(failure__in=failures, status=Job.Status.FAILED).order_by("-id")[:AT_ONCE]:
        with suppress(CannotChange):
            job.restart()
            return job
    waiting = Job.objects.later().filter(failure__in=failures).order_by("id").first()
    if waiting:
        Job.objects.filter(pk=waiting.pk).update(run_after=timezone.now())
    return waiting


def retry_all(failures: Collection[FailureGroup], *, actor: str) -> Retried:
    """Queue the failed jobs of failures again, make due what waits, and have their engines tried.

    Args:
        failures: the failures that hold the jobs.
        actor: who wants it.
    """
    failed = Job.objects.filter(failure__in=failures, status=Job.Status.FAILED)
    jobs, refused = 0, 0
    for job in failed.order_by("id")[:AT_ONCE]:
        try:
            job.restart()
            jobs += 1
        except CannotChange:
            refused += 1
    jobs += Job.objects.later().filter(failure__in=failures).update(run_after=timezone.now())
    for circuit in Circuit.objects.open().filter(engine__in=[failure.engine for failure in failures]):
        circuit.try_now(actor)
    return Retried(jobs, refused, max(0, failed.count() - refused))
