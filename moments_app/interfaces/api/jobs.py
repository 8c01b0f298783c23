"""REST endpoints for jobs, and for the number of a person's turns in each state of memory."""

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.models import Job
from moments_app.models.job import CannotChange, JobQuerySet
from moments_app.provenance.coverage import coverage, queue_builds
from sessions_app.api.fields import PublicIdField, TextField, UUIDField
from sessions_app.api.pagination import PageQuery
from sessions_app.api.permissions import key_of
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.row_security import allow_shared_changes


class JobsQuery(PageQuery):
    session_id = PublicIdField(required=False)
    process = TextField(max_length=32, required=False)
    status = serializers.ChoiceField(choices=Job.Status.choices, required=False)
    after = UUIDField(
        required=False, help_text="Id of the last job on the previous page. `after` is an alternative to `offset`."
    )


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


@extend_schema_view(
    list=extend_schema(description="Return the jobs of a person, newest first."),
    retrieve=extend_schema(description="Return a job with its progress, and its results or error."),
)
class JobViewSet(ListModelMixin, RetrieveModelMixin, PersonViewSet[Job]):
    queryset = Job.objects.select_related("session", "user").newest_first()
    serializer_class = JobAnswer
    lookup_field = "job_id"
    lookup_value_converter = "uuid"
    inputs = {"list": JobsQuery}
    answers = {"retry": {202: Accepted}}
    refuses = {"retry": [CannotChange]}
    filters = {"session_id": "session__session_id", "process": "process", "status": "status"}

    def get_queryset(self) -> JobQuerySet:
        """Return the person's jobs. A service key can also retrieve a single job of a shard."""
        jobs: JobQuerySet = super().get_queryset()
        if self.action == "list" or key_of(self.request).user_id is not None:
            return jobs
        return jobs | Job.objects.on_shards().select_related("session", "user")

    @action(detail=True, methods=["post"])
    def retry(self, request: Request, job_id: uuid.UUID) -> Response:
        """Retry a failed job with a new set of attempts."""
        job = self.get_object()
        if job.user_id is None:
            allow_shared_changes()
        job.restart()
        return self.answer({"job_id": job.job_id}, status.HTTP_202_ACCEPTED)


class CoverageAnswer(serializers.Serializer[Any]):
    """Number of turns in each state of memory."""

    in_moments = serializers.IntegerField()
    live = serializers.IntegerField()
    digested = serializers.IntegerField(
        help_text="Number of turns that a session summary has replaced. The next build adds these turns to moments."
    )
    queued = serializers.IntegerField()
    held = serializers.IntegerField(
        help_text="Number of turns whose job can't run yet, because it waits for a retry, an unavailable engine, the "
        "next day or another job."
    )
    failed = serializers.IntegerField()
    left_out = serializers.IntegerField(help_text="Number of turns whose moment was deleted.")
    archived = serializers.IntegerField()
    retracted = serializers.IntegerField()
    missing = serializers.IntegerField(
        help_text="Number of turns that no other field counts. Any number above 0 is an error."
    )
    miscounted = serializers.IntegerField(
        help_text="Number of sessions with wrong counters. Any number above 0 is an error."
    )
    oldest_waiting = serializers.DateTimeField(allow_null=True)
    jobs_with_nothing = serializers.IntegerField()


class JobsAsked(serializers.Serializer[Any]):
    job_ids = serializers.ListField(child=serializers.UUIDField())


class CoverageViewSet(PersonViewSet[Any]):
    serializer_class = CoverageAnswer
    answers = {"retry": {202: JobsAsked}}

    def retrieve(self, request: Request) -> Response:
        """Return the number of turns in each state of memory. `missing` and `miscounted` must be 0."""
        return self.answer(coverage(self.found_person))

    def retry(self, request: Request) -> Response:
        """Queue builds of moments for turns that are missing or whose job failed."""
        jobs = queue_builds(self.found_person, requested_by=self.actor)
        return self.answer({"job_ids": [job.job_id for job in jobs]}, status.HTTP_202_ACCEPTED)
