"""The account of a person's turns over REST."""

from typing import Any

from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.provenance.coverage import coverage, queue_again
from sessions_app.api.viewsets import PersonViewSet


class CoverageAnswer(serializers.Serializer[Any]):
    """How many turns are where."""

    in_moments = serializers.IntegerField()
    live = serializers.IntegerField()
    digested = serializers.IntegerField(help_text="Behind a digest; in the moments of the next build.")
    queued = serializers.IntegerField()
    held = serializers.IntegerField(help_text="In a job that waits for a back-off or an engine.")
    failed = serializers.IntegerField()
    left_out = serializers.IntegerField(help_text="Of a moment that was deleted.")
    archived = serializers.IntegerField()
    retracted = serializers.IntegerField()
    missing = serializers.IntegerField(help_text="Nowhere. Must be 0.")
    miscounted = serializers.IntegerField(help_text="Sessions whose counters disagree with their rows. Must be 0.")
    oldest_waiting = serializers.DateTimeField(allow_null=True)
    jobs_with_nothing = serializers.IntegerField()


class JobsAsked(serializers.Serializer[Any]):
    job_ids = serializers.ListField(child=serializers.UUIDField())


class CoverageViewSet(PersonViewSet[Any]):
    """The account of a person's turns."""

    serializer_class = CoverageAnswer
    answers = {"retry": {202: JobsAsked}}

    def retrieve(self, request: Request) -> Response:
        """How many turns are in moments, live, waiting, archived, retracted; `missing` and `miscounted` must be 0."""
        return self.answer(coverage(self.found_person))

    def retry(self, request: Request) -> Response:
        """Asks again for moments of turns whose job has failed, or that are nowhere."""
        jobs = queue_again(self.found_person, requested_by=self.actor)
        return self.answer({"job_ids": [job.job_id for job in jobs]}, status.HTTP_202_ACCEPTED)
