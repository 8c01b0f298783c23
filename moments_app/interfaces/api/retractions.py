"""Retraction over REST. A view parses, calls one thing, presents.

What was made of a turn stands in tables that requests may not change; so these views, which need an admin's key, work
as the tables' owner and filter by person themselves.
"""

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from moments_app.interfaces.api import serializers as shapes
from moments_app.models import Retraction
from moments_app.models.retraction import RetractionQuerySet
from moments_app.provenance.retract import CannotRetract, preview, retract
from moments_app.provenance.undo import undo_retraction
from sessions_app.api.person import acting_as, key_of, user_id_of
from sessions_app.api.requests import paged, parsed, query, session_or_404
from sessions_app.api.serializers import PageQuery, PersonQuery
from sessions_app.models import UserProfile


class RetractionsView(APIView):
    """What of a person's transcripts is no longer believed."""

    scopes = {"GET": "admin", "POST": "admin"}

    @extend_schema(parameters=[PageQuery], responses=shapes.RetractionList, operation_id="retractions_list")
    def get(self, request: Request) -> Response:
        """Retractions of a person, newest first."""
        asked = query(PageQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return paged(_retractions(user).newest_first(), "retractions", shapes.RetractionAnswer, asked)

    @extend_schema(
        request=shapes.RetractionInput, responses={201: shapes.RetractionAnswer, 200: shapes.RetractionPreview}
    )
    def post(self, request: Request) -> Response:
        """Retracts turns of a session, or all it has; with `preview` only says what that would withdraw (200)."""
        asked = parsed(shapes.RetractionInput, request.data).validated_data
        session = session_or_404(_person(request, asked.get("user_id")), asked["session_id"])
        try:
            if asked["preview"]:
                return Response(shapes.RetractionPreview(preview(session, asked["sequences"])).data)
            made = retract(session, asked["sequences"], reason=asked["reason"], requested_by=key_of(request).actor)
        except CannotRetract as error:
            raise ValidationError(str(error)) from error
        return Response(shapes.RetractionAnswer(made).data, status=status.HTTP_201_CREATED)


def _person(request: Request, named: str | None) -> UserProfile | None:
    """Whom a request is about; None: nobody, or nobody its key may see."""
    user_id = user_id_of(request, named)
    return UserProfile.objects.filter(user_id=user_id).first() if user_id is not None else None


def _retractions(user: UserProfile | None) -> RetractionQuerySet:
    return Retraction.objects.for_user(user).select_related("user", "session")


def retraction_or_404(user: UserProfile | None, retraction_id: uuid.UUID) -> Retraction:
    """A retraction of this person; one that isn't there and somebody else's are answered alike."""
    retraction = _retractions(user).filter(retraction_id=retraction_id).first()
    if retraction is None:
        raise NotFound
    return retraction


class RetractionView(APIView):
    """One retraction."""

    scopes = {"GET": "admin"}

    @extend_schema(parameters=[PersonQuery], responses=shapes.RetractionAnswer, operation_id="retractions_get")
    def get(self, request: Request, retraction_id: uuid.UUID) -> Response:
        """What was retracted, why, and whether it still is."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return Response(shapes.RetractionAnswer(retraction_or_404(user, retraction_id)).data)


class UndoView(APIView):
    """Undoing."""

    scopes = {"POST": "admin"}

    @extend_schema(request=PersonQuery, responses=shapes.RetractionAnswer)
    def post(self, request: Request, retraction_id: uuid.UUID) -> Response:
        """Believes the turns again and puts back what was withdrawn; the newest retraction goes first."""
        asked = parsed(PersonQuery, request.data).validated_data
        retraction = retraction_or_404(_person(request, asked.get("user_id")), retraction_id)
        try:
            undone = undo_retraction(retraction, requested_by=key_of(request).actor)
        except CannotRetract as error:
            raise ValidationError(str(error)) from error
        return Response(shapes.RetractionAnswer(undone).data)
