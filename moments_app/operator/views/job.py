"""The page of a job, and actions to retry and to cancel it."""

import json
from functools import partial
from typing import Any

from django.conf import settings

from moments_app.jobs.cancel import cancel
from moments_app.models import Job
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction
from sessions_app.models.event import named_actor

LEFT_SHOWN = 50  # rows of each kind that a job created
CALLS_SHOWN = 200
# For each process, the session's counter of the turns that it has read.
PROGRESS = {"build_moments": "built_to", "form_memories": "formed_to", "roll_summary": "summarised_to"}


def state_of(job: Job) -> str:
    """Return the state that the job's status and times imply, as in the list's filter."""
    if job.status == Job.Status.QUEUED:
        return "held" if job.is_held else "due" if job.is_due else "waiting"
    if job.status == Job.Status.PROCESSING:
        return "stuck" if job.is_stale else "running"
    return "cancelled" if job.is_cancelled else str(job.status)


class JobForm(FormPage[Job]):
    """A job's state, its subject, its calls and its results."""

    before = "operator/jobs/job.html"

    def context(self) -> dict[str, Any]:
        job = self.row
        calls = job.engine_calls.select_related("prompt_version__resource")
        return {
            "job": job,
            "asked_by": named_actor(job.requested_by, getattr(job, "key_name", "")),
            "state": state_of(job),
            "may_change": self.admin.has_steer_permission(self.request),
            "max_attempts": settings.JOBS.max_attempts,
            "params": _json(job.params),
            "calls": self.seen(calls).order_by("id")[:CALLS_SHOWN],
            "moments": self.seen(job.moments.defer("search_vector")).order_by("id")[:LEFT_SHOWN],
            "summaries": self.seen(job.summaries.all()).order_by("id")[:LEFT_SHOWN],
            "atoms": self.seen(job.atoms.all()).order_by("id")[:LEFT_SHOWN],
            "result": _json(job.result),
            "unread": unread_turns(job),
            "left_shown": LEFT_SHOWN,
        }


class RetryJob(RowAction[Job]):
    """Give a failed or canceled job a new set of attempts."""

    route, name, permission = "<path:pk>/retry/", "retry", "steer"

    def change(self, job: Job) -> str:
        self.attempt(job, job.restart, log="Retried.", message=f"{job} is queued again.", about=str(job))
        return change_url(job)


class CancelJob(RowAction[Job]):
    """Cancel a queued or running job."""

    route, name, permission = "<path:pk>/cancel/", "cancel", "steer"

    def change(self, job: Job) -> str:
        message = f"{job} is cancelled, and its results are discarded."
        end = partial(cancel, job, actor=self.actor)
        self.attempt(job, end, log="Cancelled.", message=message, about=str(job))
        return change_url(job)


def unread_turns(job: Job) -> tuple[int, int] | None:
    """Return the first and last turn that a failed job left unread; None if they aren't counted."""
    session = job.session
    if session is None or job.process not in PROGRESS or job.status == Job.Status.COMPLETED:
        return None
    first = getattr(session, PROGRESS[job.process]) + 1
    return (first, session.last_sequence) if first <= session.last_sequence else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""
