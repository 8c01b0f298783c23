"""`recover_jobs`: requeue running jobs whose worker died or stopped responding.

Recovery runs no job. It also restarts work that a process had started and that has no job, for example the next version
of a summary.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from moments_app.jobs.process import processes
from moments_app.jobs.whereabouts import is_gone
from moments_app.models import Job


@dataclass(frozen=True)
class Recovered:
    """The result of a recovery.

    Args:
        taken_over: the number of jobs taken from workers that died or stopped responding.
        given_up: the number of jobs that failed after too many attempts.
        begun_again: the number of times that a process restarted work without a job.
    """

    taken_over: int = 0
    given_up: int = 0
    begun_again: int = 0


@transaction.atomic
def recover_jobs(*, idle: str = "") -> Recovered:
    """Find running jobs without a live worker, and queue or fail them.

    Args:
        idle: the name of an idle worker: jobs that it seems to run were lost with its connection.
    """
    gone = [name for name in Job.objects.workers() if name == idle or is_gone(name)]
    stale = list(Job.objects.stale(gone).select_for_update(skip_locked=True))
    dead = [job for job in stale if job.attempts >= settings.JOBS.max_attempts]
    alive = [job for job in stale if job.attempts < settings.JOBS.max_attempts]
    begun_again = sum(process.recover() for process in processes())
    for job in dead:
        job.fail(f"The worker crashed or stopped responding {job.attempts} times.")
    for job in alive:
        job.release()
    return Recovered(len(alive), len(dead), begun_again)
