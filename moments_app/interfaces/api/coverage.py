"""Where a person's turns are, over REST."""

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from moments_app.interfaces.api import serializers as shapes
from moments_app.provenance.coverage import coverage, queue_again
from sessions_app.api.person import acting_as, key_of
from sessions_app.api.requests import parsed, query
from sessions_app.api.serializers import PersonQuery


class CoverageView(APIView):
    """The account of a person's turns."""

    @extend_schema(parameters=[PersonQuery], responses=shapes.CoverageAnswer)
    def get(self, request: Request) -> Response:
        """How many turns are in moments, live, waiting, archived, retracted; `missing` and `miscounted` must be 0."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            if user is None:
                raise NotFound
            return Response(shapes.CoverageAnswer(coverage(user)).data)

    @extend_schema(request=PersonQuery, responses={202: shapes.JobsAsked})
    def post(self, request: Request) -> Response:
        """Asks again for moments of turns whose job has failed, or that are nowhere."""
        asked = parsed(PersonQuery, request.data).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            if user is None:
                raise NotFound
            jobs = queue_again(user, requested_by=key_of(request).actor)
        return Response({"job_ids": [job.job_id for job in jobs]}, status=status.HTTP_202_ACCEPTED)
