"""Jobs over REST."""

import uuid
from typing import Any

from rest_framework import serializers, status
from rest_framework.response import Response

from moments_app.models import Job
from moments_app.models.job import CannotChange, JobQuerySet
from sessions_app.api.fields import PublicIdField, TextField
from sessions_app.api.pages import PageAnswer, PageQuery
from sessions_app.api.person import PersonQuery, key_of
from sessions_app.api.person_view import PersonView, one_or_404, operation
from sessions_app.models import UserProfile
from sessions_app.row_security import let_everybodys_change


class JobsQuery(PageQuery):
    """Filters of a list of jobs."""

    session_id = PublicIdField(required=False)
    process = TextField(max_length=32, required=False)
    status = serializers.ChoiceField(choices=Job.Status.choices, required=False)


class Accepted(serializers.Serializer[Any]):
    status = serializers.CharField(default="accepted")
    job_id = serializers.UUIDField()


class ProgressAnswer(serializers.Serializer[Any]):
    done = serializers.IntegerField(source="progress_done")
    total = serializers.IntegerField(source="progress_total")


class JobAnswer(serializers.ModelSerializer[Job]):
    """A job with its outcome so far."""

    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    user_id = serializers.CharField(source="user.user_id", default=None, allow_null=True)
    progress = ProgressAnswer(source="*")

    class Meta:
        model = Job
        fields = (
            "job_id",
            "process",
            "status",
            "session_id",
            "user_id",
            "attempts",
            "progress",
            "result",
            "error",
            "queued_at",
            "started_at",
            "finished_at",
        )


class JobList(PageAnswer):
    jobs = JobAnswer(many=True)


def accepted(job: Job) -> Response:
    """Answer that a job is asked for."""
    return Response({"status": "accepted", "job_id": job.job_id}, status=status.HTTP_202_ACCEPTED)


def jobs_of(person: UserProfile | None) -> JobQuerySet:
    """Return the jobs about a person."""
    return Job.objects.for_user(person).select_related("session", "user")


class JobsView(PersonView):
    """Jobs about a person."""

    @operation(JobList, query=JobsQuery)
    def get(self) -> Response:
        """Jobs about a person, newest first."""
        jobs = jobs_of(self.person).newest_first()
        return self.page(
            JobList, self.filtered(jobs, session_id="session__session_id", process="process", status="status")
        )


class JobPersonView(PersonView):
    """A call about one job."""

    def job(self, job_id: uuid.UUID) -> Job:
        """Return a job about the person; for a service's key, which may ask for one, also a job on a shard."""
        jobs = jobs_of(self.person)
        if key_of(self.request).user_id is None:
            jobs |= Job.objects.on_shards().select_related("session", "user")
        return one_or_404(jobs, job_id=job_id)


class JobView(JobPersonView):
    """One job."""

    @operation(JobAnswer, query=PersonQuery)
    def get(self, job_id: uuid.UUID) -> Response:
        """How far the job is, what it made, or why it failed."""
        return Response(JobAnswer(self.job(job_id)).data)


class JobRetryView(JobPersonView):
    """Another try of a job."""

    @operation({202: Accepted}, body=PersonQuery, refuses=[CannotChange], operation_id="jobs_retry")
    def post(self, job_id: uuid.UUID) -> Response:
        """Gives a failed job a new set of attempts."""
        job = self.job(job_id)
        if job.user_id is None:
            let_everybodys_change()
        job.restart()
        return accepted(job)
