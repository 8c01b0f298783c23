"""`recover_jobs`: every running job whose worker is gone, or has gone silent, is put back.

Nothing here runs a job. What a process had begun and has no job, such as the next version of a summary, is begun again.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from moments_app.jobs.process import processes
from moments_app.jobs.whereabouts import is_gone
from moments_app.models import Job


@dataclass(frozen=True)
class Recovered:
    """What a recovery did.

    Args:
        taken_over: jobs that were taken from workers that died or fell silent.
        given_up: jobs that failed for good, after too many attempts.
        begun_again: what processes had begun and had no job.
    """

    taken_over: int = 0
    given_up: int = 0
    begun_again: int = 0


@transaction.atomic
def recover_jobs(*, idle: str = "") -> Recovered:
    """Find jobs that nobody works on and put them back.

    Args:
        idle: the name of a worker that works on nothing: what it seems to run it has lost, with its connection.
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
