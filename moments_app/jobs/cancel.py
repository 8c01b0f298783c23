"""`cancel`: a job that is queued or running is ended before it is done.

The row of the job says so at once. A run that an engine keeps busy finds its claim gone at its commit, and writes
nothing. A cancelled job can be retried; and what is due by a threshold or a schedule is asked for again by itself.
"""

from django.db import transaction

from moments_app.jobs.runner import PROCESSES
from moments_app.models import Job
from sessions_app.models import Session


@transaction.atomic
def cancel(job: Job, *, actor: str) -> None:
    """Ends the job, and gives up what it had begun.

    Args:
        job: that is queued or running.
        actor: who does: operator:….

    Raises:
        CannotChange: when the job has ended; names its state.
    """
    if job.session_id is not None:  # locked before the job, as a commit does
        Session.objects.locked().filter(pk=job.session_id).first()
    job.cancel(actor=actor)
    PROCESSES[job.process].failed(job, f"Cancelled by {actor}.")
