"""`recover_jobs`: every job that nobody works on is found and queued again.

There are two kinds: running ones whose worker has gone silent, and queued ones whose time has come but which the queue
doesn't hold (their entry was lost, or they waited for a back-off). Nothing here runs a job; queueing one twice is
harmless. What a process had begun and has no job, such as the next version of a summary, is begun again.
"""

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django_q.models import OrmQ

from moments_app.jobs.process import processes
from moments_app.models import Job
from moments_app.models.job import RUN_TASK


@dataclass(frozen=True)
class Recovered:
    """What a recovery did.

    Args:
        taken_over: jobs that were taken from workers that died or fell silent.
        given_up: jobs that failed for good, after too many attempts.
        requeued: jobs that were put back into the queue.
        begun_again: what processes had begun and had no job.
    """

    taken_over: int = 0
    given_up: int = 0
    requeued: int = 0
    begun_again: int = 0

    def __str__(self) -> str:
        return (
            f"taken from dead workers: {self.taken_over}, given up: {self.given_up}, requeued: {self.requeued}, "
            f"begun again: {self.begun_again}"
        )


@transaction.atomic
def recover_jobs(*, dry_run: bool = False) -> Recovered:
    """Find jobs that nobody works on and queue them again.

    Args:
        dry_run: only count.
    """
    stale = list(Job.objects.stale().select_for_update(skip_locked=True))
    dead = [job for job in stale if job.attempts >= settings.JOBS.max_attempts]
    alive = [job for job in stale if job.attempts < settings.JOBS.max_attempts]
    queued = _queued_job_ids()
    lost = [job for job in Job.objects.due().select_for_update(skip_locked=True) if str(job.job_id) not in queued]
    begun_again = sum(process.recover(dry_run=dry_run) for process in processes())
    if not dry_run:
        for job in dead:
            job.fail(f"The worker died or fell silent, {job.attempts} times.")
        for job in alive:
            job.release()
        for job in (*alive, *lost):
            job.enqueue()
    return Recovered(len(alive), len(dead), len(lost), begun_again)


def _queued_job_ids() -> set[str]:
    """Return the jobs that the queue holds an entry for: one that waits, or one that a cluster took just now.

    An entry that was taken long ago while its job is still queued belongs to a cluster that has died.
    """
    now = timezone.now()
    retry = timedelta(seconds=settings.QUEUE_RETRY_SECONDS - settings.JOBS.stale_seconds)
    held = OrmQ.objects.filter(Q(lock__lte=now) | Q(lock__gt=now + retry))
    tasks = (row.task for row in held.iterator())
    return {task["args"][0] for task in tasks if task.get("func") == RUN_TASK}
