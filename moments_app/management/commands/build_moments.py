from typing import Any

from django.core.management.base import CommandError, CommandParser

from moments_app.jobs.runner import run_job
from moments_app.models import Job
from moments_app.moments.build import BuildMoments
from sessions_app.management.base import RefusingCommand, add_application, application_of
from sessions_app.models import Session


class Command(RefusingCommand):
    help = "Build the moments of one session now."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, help="user_id of the person")
        parser.add_argument("--session", required=True, help="session_id of the session")
        add_application(parser)
        parser.add_argument("--force", action="store_true", help="build regardless of the thresholds")
        parser.add_argument("--lag", type=int, help="number of turns to keep live; needs --force")

    def handle(self, *args: Any, **options: Any) -> str:
        session = Session.objects.named(options["session"], options["user"], application_of(options)).first()
        if session is None:
            raise CommandError(f"User {options['user']!r} has no session {options['session']!r}.")
        if options["lag"] is not None and (options["lag"] < 0 or not options["force"]):
            raise CommandError("--lag must be 0 or more, and needs --force.")
        params = {} if options["lag"] is None else {"lag": options["lag"]}
        queued = Job.objects.request(
            BuildMoments.name, session, requested_by="command", force=options["force"], params=params
        )
        job = run_job(queued.job_id)
        if job is None:
            return _why_not_run(Job.objects.get(pk=queued.pk))
        if job.status in (Job.Status.QUEUED, Job.Status.FAILED):
            raise CommandError(f"Job {job.job_id} is {job.status}: {job.error}")
        return f"Job {job.job_id} {job.status}: {job.result}"


def _why_not_run(job: Job) -> str:
    if job.is_held:
        return f"Job {job.job_id} is waiting for its engine. {job.error}"
    if job.status == Job.Status.QUEUED:
        until = f"{job.run_after:%Y-%m-%d %H:%M:%S} UTC"
        return f"Job {job.job_id} is waiting until {until}, because its last attempt failed: {job.error}"
    if job.status == Job.Status.PROCESSING:
        return f"A worker is already running job {job.job_id}."
    return f"A worker has just {job.status} job {job.job_id}."
