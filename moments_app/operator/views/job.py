"""The page of a job, trying one again, and ending one."""

import json
from functools import partial
from typing import Any

from django.conf import settings

from moments_app.jobs.cancel import cancel
from moments_app.models import Job
from sessions_app.actors import named_actor
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction

LEFT_SHOWN = 50  # of each kind that a job left
CALLS_SHOWN = 200
# By process, the mark of a session up to which it has read the turns.
PROGRESS = {"build_moments": "built_to", "form_memories": "formed_to", "roll_summary": "summarised_to"}


def state_of(job: Job) -> str:
    """Name what its status and times come to, as the list's filter does."""
    if job.status == Job.Status.QUEUED:
        return "held" if job.is_held else "due" if job.is_due else "waiting"
    if job.status == Job.Status.PROCESSING:
        return "stuck" if job.is_stale else "running"
    return "cancelled" if job.is_cancelled else str(job.status)


class JobForm(FormPage[Job]):
    """A job's state, what it is about, its calls and what it left."""

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
    """Give a job that failed or was cancelled a new set of attempts."""

    route, name, permission = "<path:pk>/retry/", "retry", "steer"

    def change(self, job: Job) -> str:
        self.attempt(job, job.restart, log="Retried.", message=f"{job} is queued again.", about=str(job))
        return change_url(job)


class CancelJob(RowAction[Job]):
    """End a job that is queued or running."""

    route, name, permission = "<path:pk>/cancel/", "cancel", "steer"

    def change(self, job: Job) -> str:
        message = f"{job} is cancelled, and its results are discarded."
        end = partial(cancel, job, actor=self.actor)
        self.attempt(job, end, log="Cancelled.", message=message, about=str(job))
        return change_url(job)


def unread_turns(job: Job) -> tuple[int, int] | None:
    """Return the first and last turn that a job which came to nothing has left; None where that isn't counted."""
    session = job.session
    if session is None or job.process not in PROGRESS or job.status == Job.Status.COMPLETED:
        return None
    first = getattr(session, PROGRESS[job.process]) + 1
    return (first, session.last_sequence) if first <= session.last_sequence else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""
