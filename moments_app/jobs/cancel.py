"""`cancel`: a job that is queued or running is ended before it is done.

The row of the job says so at once. A run that an engine keeps busy finds its claim gone at its commit, and writes
nothing. A cancelled job can be retried; and what is due by a threshold or a schedule is asked for again by itself.
"""

from contextlib import suppress

from django.db import transaction

from moments_app.jobs.process import UnknownProcess, process_named
from moments_app.models import Job
from sessions_app.models import Session


@transaction.atomic
def cancel(job: Job, *, actor: str) -> None:
    """End the job, and give up what it had begun.

    Args:
        job: queued or running.
        actor: who cancels: operator:….

    Raises:
        CannotChange: when the job has ended; names its state.
    """
    if job.session_id is not None:  # locked before the job, as a commit does
        Session.objects.locked().filter(pk=job.session_id).first()
    job.cancel(actor=actor)
    with suppress(UnknownProcess):  # another release's, which alone knows what to give up
        process_named(job.process).failed(job, f"Cancelled by {actor}.")
