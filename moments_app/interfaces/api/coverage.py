"""The number of a person's turns in each state of memory, over REST."""

from typing import Any

from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.provenance.coverage import coverage, queue_again
from sessions_app.api.viewsets import PersonViewSet


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
    """The number of a person's turns in each state of memory."""

    serializer_class = CoverageAnswer
    answers = {"retry": {202: JobsAsked}}

    def retrieve(self, request: Request) -> Response:
        """Return the number of turns in each state of memory. `missing` and `miscounted` must be 0."""
        return self.answer(coverage(self.found_person))

    def retry(self, request: Request) -> Response:
        """Queue builds of moments for turns that are missing or whose job failed."""
        jobs = queue_again(self.found_person, requested_by=self.actor)
        return self.answer({"job_ids": [job.job_id for job in jobs]}, status.HTTP_202_ACCEPTED)
