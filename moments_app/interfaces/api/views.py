"""Moments and jobs over REST. A view parses, calls one thing, presents."""

import uuid
from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from moments_app.interfaces.api import serializers as shapes
from moments_app.models import Job, Moment, Summary
from moments_app.models.job import JobQuerySet
from moments_app.moments.build import BuildMoments
from moments_app.moments.delete import delete_moment
from moments_app.sessions.digest import DigestSession
from sessions_app.api.person import acting_as, key_of
from sessions_app.api.requests import paged, parsed, query, session_or_404, update
from sessions_app.api.serializers import PageQuery, PersonQuery
from sessions_app.models import Event, UserProfile


def moment_or_404(user: UserProfile | None, key: str) -> Moment:
    """This person's moment; one that isn't there and somebody else's are answered alike."""
    moment = Moment.objects.for_user(user).select_related("source_session").filter(key=key).first()
    if moment is None:
        raise NotFound
    return moment


class BuildView(APIView):
    """Building moments on demand."""

    @extend_schema(request=shapes.BuildInput, responses={202: shapes.Accepted})
    def post(self, request: Request) -> Response:
        """Asks for a build; while one is open for the session, that one is answered."""
        asked = parsed(shapes.BuildInput, request.data).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            job = Job.objects.request(
                BuildMoments.name,
                session_or_404(user, asked["session_id"]),
                requested_by=key_of(request).actor,
                force=asked["force"],
                params={"lag": asked["lag"]} if "lag" in asked else {},
            )
        return Response({"status": "accepted", "job_id": job.job_id}, status=status.HTTP_202_ACCEPTED)


class CompactView(APIView):
    """Digesting a session on demand."""

    @extend_schema(request=PersonQuery, responses={202: shapes.Accepted})
    def post(self, request: Request, session_id: str) -> Response:
        """Asks for a digest of the whole live window: the next load begins with it."""
        asked = parsed(PersonQuery, request.data).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            session = session_or_404(user, session_id)
            job = Job.objects.request(DigestSession.name, session, requested_by=key_of(request).actor, force=True)
        return Response({"status": "accepted", "job_id": job.job_id}, status=status.HTTP_202_ACCEPTED)


class MomentsView(APIView):
    """A person's moments."""

    @extend_schema(parameters=[shapes.MomentsQuery], responses=shapes.MomentList, operation_id="moments_list")
    def get(self, request: Request) -> Response:
        """Moments of a person, newest first."""
        asked = query(shapes.MomentsQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return paged(_filtered(user, asked).newest_first(), "moments", shapes.MomentRow, asked)


def _filtered(user: UserProfile | None, asked: dict[str, Any]) -> Any:
    moments = Moment.objects.for_user(user)
    fields = {
        "category": "category",
        "session_id": "source_session__session_id",
        "since": "ends_at__gte",
        "until": "starts_at__lte",
    }
    moments = moments.filter(**{field: asked[name] for name, field in fields.items() if name in asked})
    if "topic" in asked:
        moments = moments.with_topic(asked["topic"])
    return moments.matching(asked["text"]) if "text" in asked else moments


class MomentView(APIView):
    """One moment."""

    @extend_schema(parameters=[PersonQuery], responses=shapes.MomentAnswer, operation_id="moments_get")
    def get(self, request: Request, key: str) -> Response:
        """The whole moment."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return Response(shapes.MomentAnswer(moment_or_404(user, key)).data)

    @extend_schema(request=shapes.MomentPatch, responses=shapes.MomentAnswer)
    def patch(self, request: Request, key: str) -> Response:
        """Corrects the moment; its key and its turns stay."""
        asked = parsed(shapes.MomentPatch, request.data).validated_data
        with acting_as(request, asked.pop("user_id", None)) as user:
            moment = moment_or_404(user, key)
            update(moment, asked)
            _log(request, "moment_edited", moment, fields=sorted(asked))
        return Response(shapes.MomentAnswer(moment).data)

    @extend_schema(parameters=[PersonQuery], responses={204: OpenApiResponse(description="Deleted.")})
    def delete(self, request: Request, key: str) -> Response:
        """Deletes the moment; the turns stay, and the chain closes over the gap."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            delete_moment(moment_or_404(user, key), actor=key_of(request).actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _log(request: Request, event: str, moment: Moment, **payload: Any) -> None:
    Event.objects.create(
        type=event,
        actor=key_of(request).actor,
        user_pk=moment.user_id,
        session_pk=moment.source_session_id,
        payload={"key": moment.key, **payload},
    )


class ChainView(APIView):
    """The chain of moments."""

    @extend_schema(parameters=[shapes.ChainQuery], responses=shapes.MomentChain)
    def get(self, request: Request, key: str) -> Response:
        """The moments before this one, nearest first."""
        asked = query(shapes.ChainQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            moment = moment_or_404(user, key)
            found = Moment.objects.chain_from(moment, asked["depth"] + 1)
        shown = shapes.MomentRow(found[: asked["depth"]], many=True).data
        return Response({"moments": shown, "has_more": len(found) > asked["depth"]})


class SummariesView(APIView):
    """The rolling summary of a session, all its versions."""

    @extend_schema(parameters=[PageQuery], responses=shapes.SummaryList)
    def get(self, request: Request, session_id: str) -> Response:
        """Versions of a session's rolling summary, newest first; `completed` ones form a chain."""
        asked = query(PageQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            versions = Summary.objects.for_session(session_or_404(user, session_id)).newest_first()
            rows = versions.select_related("base").with_source_sequences()
            return paged(rows, "summaries", shapes.SummaryRow, asked)


class JobsView(APIView):
    """Jobs about a person."""

    @extend_schema(parameters=[shapes.JobsQuery], responses=shapes.JobList, operation_id="jobs_list")
    def get(self, request: Request) -> Response:
        """Jobs about a person, newest first."""
        asked = query(shapes.JobsQuery, request).validated_data
        fields = {"session_id": "session__session_id", "process": "process", "status": "status"}
        wanted = {field: asked[name] for name, field in fields.items() if name in asked}
        with acting_as(request, asked.get("user_id")) as user:
            return paged(_jobs(user).filter(**wanted).newest_first(), "jobs", shapes.JobAnswer, asked)


def _jobs(user: UserProfile | None) -> JobQuerySet:
    return Job.objects.for_user(user).select_related("session", "user")


def job_or_404(user: UserProfile | None, job_id: uuid.UUID) -> Job:
    """A job about this person; one that isn't there and somebody else's are answered alike."""
    job = _jobs(user).filter(job_id=job_id).first()
    if job is None:
        raise NotFound
    return job


class JobView(APIView):
    """One job."""

    @extend_schema(parameters=[PersonQuery], responses=shapes.JobAnswer, operation_id="jobs_get")
    def get(self, request: Request, job_id: uuid.UUID) -> Response:
        """How far the job is, what it made, or why it failed."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return Response(shapes.JobAnswer(job_or_404(user, job_id)).data)


class JobRetryView(APIView):
    """Trying again."""

    @extend_schema(request=PersonQuery, responses={202: shapes.Accepted})
    def post(self, request: Request, job_id: uuid.UUID) -> Response:
        """Gives a failed job a new set of attempts."""
        asked = parsed(PersonQuery, request.data).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            job = job_or_404(user, job_id)
            try:
                job.restart()
            except ValueError as error:
                raise ValidationError(str(error)) from error
        return Response({"status": "accepted", "job_id": job.job_id}, status=status.HTTP_202_ACCEPTED)
