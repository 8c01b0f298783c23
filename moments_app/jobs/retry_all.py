"""`retry_all`: everything that waits because of one failure is tried again, at once."""

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


def retry_all(failure: FailureGroup, *, actor: str) -> Retried:
    """Queue the failed jobs of a failure again, make due what waits, and have its engine tried.

    Args:
        failure: because of which they wait.
        actor: who wants it.
    """
    stalled = Job.objects.stalled().filter(failure=failure)
    failed = stalled.filter(status=Job.Status.FAILED)
    jobs, refused = 0, 0
    for job in failed.order_by("id")[:AT_ONCE]:
        try:
            job.restart()
            jobs += 1
        except CannotChange:
            refused += 1
    jobs += Job.objects.later().filter(failure=failure).update(run_after=timezone.now())
    if failure.engine:
        for circuit in Circuit.objects.open().filter(engine=failure.engine):
            circuit.try_now(actor)
    return Retried(jobs, refused, max(0, failed.count() - refused))
