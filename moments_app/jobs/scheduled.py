"""Tasks: jobs that call a function, on a schedule or once.

django-q2 stores the schedules and finds the due ones. Its broker is the table of jobs (`JobBroker`). While a task is
open, the same task is not queued again.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.core import signing
from django.dispatch import receiver
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.brokers import Broker
from django_q.models import Schedule
from django_q.signing import SignedPackage

from moments_app.jobs.process import Lane, PostponeJob, Process, ProcessInput, Progress
from moments_app.models import Job
from moments_app.models.job import TASK
from sessions_app.clock import database_now
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.signals import call_wanted

STORAGE_PAUSE = timedelta(hours=1)  # delay of a retry after the storage failed


class JobBroker(Broker):  # type: ignore[misc]
    def enqueue(self, package: str) -> str:
        task = SignedPackage.loads(package)
        name = task.get("group") or name_of(task["func"], *task["args"], **task["kwargs"])
        job = Job.objects.request_task(
            name, task["func"], *task["args"], kwargs=task["kwargs"], requested_by="schedule"
        )
        return str(job.job_id)


def name_of(function: str, *args: Any, **kwargs: Any) -> str:
    """Return the name of a call. Calls with the same arguments have the same name, so only one of them is open."""
    digest = sha256(json.dumps([function, args, kwargs]).encode()).hexdigest()
    return f"{function.rpartition('.')[2][:80]} {digest[:16]}"


@receiver(call_wanted)
def call_later(function: str, args: Sequence[Any], user_pk: int | None, **_: Any) -> None:
    """Queue the call of a function, in the sender's transaction."""
    name = name_of(function, *args)
    Job.objects.request_task(name, function, *args, user_id=user_pk, requested_by="transcript")


class RunTask(Process[ProcessInput, None]):
    """Calls a function. The function opens its own transactions."""

    name = TASK
    title = "Scheduled task"
    lane = Lane.SCHEDULED
    is_upkeep = True

    def prepare(self, job: Job, progress: Progress) -> None:
        """Call the function. If the archive storage fails, retry later without counting the attempt."""
        function, args, kwargs = signing.loads(job.params["call"], salt=TASK)
        try:
            import_string(function)(*args, **kwargs)
        except ArchiveError as error:
            raise PostponeJob(database_now() + STORAGE_PAUSE, str(error), held_by=Job.Held.BACKOFF) from error

    def claim(self, job: Job) -> ProcessInput:
        return ProcessInput(prompt_version=None)

    def think(self, input: ProcessInput, engine: Any, progress: Progress) -> None:
        return None

    def commit(self, job: Job, input: ProcessInput, answer: None) -> None:
        """Complete the job, and delete the earlier runs of the same task."""
        job.complete({})
        Job.objects.filter(process=TASK, task=job.task, status=Job.Status.COMPLETED).exclude(pk=job.pk).delete()


def next_schedule(*, within: float) -> float:
    """Return the seconds until the next schedule is due, at most `within`."""
    due = Schedule.objects.exclude(repeats=0).order_by("next_run").values_list("next_run", flat=True)
    waits: list[float] = [(next_run - timezone.now()).total_seconds() for next_run in due[:1]]
    return max(min([*waits, within]), 0.0)
