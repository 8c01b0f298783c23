"""Memory streams over REST. A view parses, calls one thing, presents."""

import uuid
from dataclasses import asdict

from django.core.exceptions import ValidationError as InvalidStream
from django.db.models import Q
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from moments_app.interfaces.api import serializers as shapes
from moments_app.models import Job, MemoryAtom, MemoryStream
from moments_app.models.atom import content_hash
from moments_app.models.stream import LESSONS, LESSONS_DEFAULTS, SHARD_DEFAULTS
from moments_app.streams.add_atoms import add_atoms
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.texts import undo
from sessions_app.api.errors import Conflict
from sessions_app.api.person import acting_as, key_of
from sessions_app.api.requests import paged, parsed, query, update
from sessions_app.api.serializers import PersonQuery
from sessions_app.insert import insert_unless_there
from sessions_app.models import UserProfile


class AlreadyThere(Conflict):
    """What was to be made is there."""

    default_code = "already_there"


def seen_by(user: UserProfile | None) -> Q:
    """A person's streams, and the shards, which are everybody's."""
    return Q(user=user) | Q(user=None) if user else Q(user=None)


def stream_or_404(user: UserProfile | None, stream_id: uuid.UUID) -> MemoryStream:
    """This person's stream or a shard; one that isn't there and somebody else's are answered alike."""
    seen = MemoryStream.objects.filter(seen_by(user)).select_related("user", "session")
    stream = seen.filter(stream_id=stream_id).first()
    if stream is None:
        raise NotFound
    return stream


def refuse_shards_to_users(request: Request, stream: MemoryStream) -> None:
    """A key of one person changes nothing that is everybody's.

    Raises:
        PermissionDenied: it tries to.
    """
    if stream.user_id is None and key_of(request).user_id is not None:
        raise PermissionDenied("A user's key can't change what all users of an agent share.")


class StreamsView(APIView):
    """A person's streams, and the shards."""

    scopes = {"POST": "admin"}

    @extend_schema(parameters=[shapes.StreamsQuery], responses=shapes.StreamList, operation_id="streams_list")
    def get(self, request: Request) -> Response:
        """Streams of a person and the shards of all agents, latest change first."""
        asked = query(shapes.StreamsQuery, request).validated_data
        fields = {"stream_type": "stream_type", "agent_id": "agent_id", "session_id": "session__session_id"}
        wanted = {field: asked[name] for name, field in fields.items() if name in asked}
        with acting_as(request, asked.get("user_id")) as user:
            seen = MemoryStream.objects.filter(seen_by(user)).select_related("user", "session")
            rows = seen.filter(**wanted).order_by("-last_updated_at", "-id")
            return paged(rows, "streams", shapes.StreamAnswer, asked)

    @extend_schema(request=shapes.ShardInput, responses={201: shapes.StreamAnswer})
    def post(self, request: Request) -> Response:
        """Makes a shard: memory that all users of an agent share. One of that name: 409."""
        asked = parsed(shapes.ShardInput, request.data).validated_data
        with acting_as(request, asked.pop("user_id", None)):
            defaults = LESSONS_DEFAULTS if asked["name"] == LESSONS else SHARD_DEFAULTS
            stream = MemoryStream(stream_type=MemoryStream.Type.AGENT, **asdict(defaults) | asked)
            refuse_shards_to_users(request, stream)
            _check_limits(stream)
            if not insert_unless_there(stream):
                raise AlreadyThere(f"There is a shard {stream.name} of this agent.")
        return Response(shapes.StreamAnswer(stream).data, status=status.HTTP_201_CREATED)


def _check_limits(stream: MemoryStream) -> None:
    try:
        stream.clean()
    except InvalidStream as error:
        raise ValidationError(error.message_dict) from error


class StreamView(APIView):
    """One stream."""

    scopes = {"PATCH": "admin"}

    @extend_schema(parameters=[PersonQuery], responses=shapes.StreamDetail, operation_id="streams_get")
    def get(self, request: Request, stream_id: uuid.UUID) -> Response:
        """The stream with its settings and its text, and what each line of that rests on."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return Response(shapes.StreamDetail(stream_or_404(user, stream_id)).data)

    @extend_schema(request=shapes.StreamPatch, responses=shapes.StreamAnswer)
    def patch(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Changes its settings or its text."""
        asked = parsed(shapes.StreamPatch, request.data).validated_data
        with acting_as(request, asked.pop("user_id", None)) as user:
            stream = stream_or_404(user, stream_id)
            refuse_shards_to_users(request, stream)
            for name, value in asked.items():
                setattr(stream, name, value)
            _check_limits(stream)
            update(stream, asked | {"last_updated_at": timezone.now()})
        return Response(shapes.StreamAnswer(stream).data)


class AtomsView(APIView):
    """What is in a stream."""

    @extend_schema(parameters=[shapes.AtomsQuery], responses=shapes.AtomList, operation_id="stream_atoms_list")
    def get(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Facts and observations, newest first."""
        asked = query(shapes.AtomsQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            atoms = stream_or_404(user, stream_id).atoms.filter(state=asked["state"])
            if "atom_type" in asked:
                atoms = atoms.filter(atom_type=asked["atom_type"])
            rows = atoms.with_rag_indexed().select_related("source_session").newest_first()
            return paged(rows, "atoms", shapes.AtomAnswer, asked)

    @extend_schema(request=shapes.AtomInput, responses={201: shapes.AtomAnswer, 200: shapes.AtomAnswer})
    def post(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Adds one directly; answers 200 with the present one when the stream has it."""
        asked = parsed(shapes.AtomInput, request.data).validated_data
        with acting_as(request, asked.pop("user_id", None)) as user:
            stream = stream_or_404(user, stream_id)
            refuse_shards_to_users(request, stream)
            digest = content_hash(asked["content"])
            atom = MemoryAtom(stream=stream, user_id=stream.user_id, content_hash=digest, **asked)
            created = bool(add_atoms(stream, [atom], requested_by=key_of(request).actor))
            if not created:
                atom = stream.atoms.active().get(content_hash=digest)
        code = status.HTTP_201_CREATED if created else status.HTTP_200_OK
        return Response(shapes.AtomAnswer(atom).data, status=code)


class ConsolidateView(APIView):
    """Folding observations into the text."""

    @extend_schema(request=PersonQuery, responses={202: shapes.Accepted})
    def post(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Asks for a consolidation, however few observations wait."""
        asked = parsed(PersonQuery, request.data).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            stream = stream_or_404(user, stream_id)
            refuse_shards_to_users(request, stream)
            job = Job.objects.request(
                Consolidate.name, None, stream=stream, requested_by=key_of(request).actor, force=True
            )
        return Response({"status": "accepted", "job_id": job.job_id}, status=status.HTTP_202_ACCEPTED)


class UndoView(APIView):
    """Taking a consolidation back."""

    scopes = {"POST": "admin"}

    @extend_schema(request=PersonQuery, responses=shapes.StreamAnswer)
    def post(self, request: Request, stream_id: uuid.UUID) -> Response:
        """The text is as before the last consolidation, and what it absorbed waits again."""
        asked = parsed(PersonQuery, request.data).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            stream = stream_or_404(user, stream_id)
            refuse_shards_to_users(request, stream)
            try:
                undo(stream)
            except ValueError as error:
                raise ValidationError(str(error)) from error
            return Response(shapes.StreamAnswer(stream_or_404(user, stream_id)).data)
