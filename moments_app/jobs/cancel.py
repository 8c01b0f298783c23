"""`cancel`: end a queued or running job early.

The job's row changes at once. If an engine is still working for the job, the commit finds the claim gone and writes
nothing. A canceled job can be retried. Work that a threshold or a schedule makes due is queued again automatically.
"""

from contextlib import suppress

from django.db import transaction

from moments_app.jobs.process import UnknownProcess, process_named
from moments_app.models import Job
from sessions_app.models import Session
from sessions_app.models.event import named_actor


@transaction.atomic
def cancel(job: Job, *, actor: str) -> None:
    """End the job, and undo what it had started.

    Args:
        job: a queued or running job.
        actor: who cancels: `operator:…`.

    Raises:
        CannotChange: the job has ended; the message names its state.
    """
    if job.session_id is not None:  # locked before the job, as in a commit
        Session.objects.locked().filter(pk=job.session_id).first()
    job.cancel(actor=actor)
    with suppress(UnknownProcess):  # only another release, which has this process, can undo its work
        process_named(job.process).failed(job, f"Cancelled by {named_actor(actor)}.")
