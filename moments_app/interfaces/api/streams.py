"""Memory streams over REST."""

import uuid
from dataclasses import asdict
from typing import Any, ClassVar

from django.core.exceptions import ValidationError as InvalidStream
from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.utils import (
    extend_schema,
    extend_schema_field,
    extend_schema_serializer,
    extend_schema_view,
)
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.interfaces.api.jobs import Accepted
from moments_app.models import Job, MemoryStream
from moments_app.models.stream import LESSONS, LESSONS_DEFAULTS, SHARD_DEFAULTS
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.edit import pin_text
from moments_app.streams.texts import CannotUndo, undo, write_text
from sessions_app.api.fields import CONTRADICTORY, BooleanField, IntegerField, PersonQuery, PublicIdField, TextField
from sessions_app.api.pagination import PageQuery
from sessions_app.api.permissions import HasScope, key_of
from sessions_app.api.viewsets import M, PersonViewSet, one_or_404, update
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import UserProfile
from sessions_app.refusals import Conflict
from sessions_app.row_security import allow_shared_changes

STREAM_FIELDS = (
    "is_active",
    "extraction_prompt",
    "extracts_observations",
    "extracts_facts",
    "observation_min",
    "observation_max",
    "observation_max_words",
    "fact_min",
    "fact_max",
    "fact_max_words",
    "extraction_model",
    "consolidation_prompt",
    "consolidation_trigger",
    "consolidated_max_words",
    "fact_buffer_max",
    "consolidation_model",
    "pinned_content",
    "consolidated_content",
)


IGNORED_FIELDS = ("observation_min", "observation_max", "fact_min", "fact_max")
IGNORED_HELP = "Deprecated and ignored. The engine extracts all items that may be useful later."
PROMPT_FIELDS = ("extraction_prompt", "consolidation_prompt")
HIDDEN_HELP = "Null if the stream is a shard and the key belongs to a user."


class StreamsQuery(PageQuery):
    stream_type = serializers.ChoiceField(choices=MemoryStream.Type.choices, required=False)
    agent_id = PublicIdField(required=False)
    session_id = PublicIdField(required=False)


class CountField(IntegerField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=0, max_value=10_000, required=False, **kwargs)


@extend_schema_serializer(deprecate_fields=IGNORED_FIELDS)
class StreamPatch(PersonQuery):
    """The fields of a stream that can be changed."""

    is_active = BooleanField(required=False)
    extraction_prompt = TextField(max_length=10_000, required=False)
    extracts_observations = BooleanField(required=False)
    extracts_facts = BooleanField(required=False)
    observation_min = CountField(help_text=IGNORED_HELP)
    observation_max = CountField(help_text=IGNORED_HELP)
    observation_max_words = CountField()
    fact_min = CountField(help_text=IGNORED_HELP)
    fact_max = CountField(help_text=IGNORED_HELP)
    fact_max_words = CountField()
    extraction_model = TextField(
        max_length=255,
        allow_blank=True,
        required=False,
        help_text="Model that extracts facts and observations. The model must be listed in "
        "MEMORY_FORMATION__STREAM_MODELS. If blank, ENGINE__MODEL is used.",
    )
    consolidation_prompt = TextField(max_length=10_000, allow_blank=True, required=False)
    consolidation_trigger = CountField()
    consolidated_max_words = CountField()
    fact_buffer_max = CountField()
    consolidation_model = TextField(max_length=255, allow_blank=True, required=False)
    pinned_content = TextField(max_length=50_000, allow_blank=True, required=False)
    consolidated_content = TextField(max_length=50_000, allow_blank=True, required=False)


@extend_schema_serializer(deprecate_fields=IGNORED_FIELDS)
class ShardInput(StreamPatch):
    """A new shard."""

    name = TextField(max_length=64)
    agent_id = PublicIdField(
        required=False, help_text="The agent that uses the shard. By default, every agent uses the shard."
    )
    extraction_prompt = TextField(max_length=10_000)


@extend_schema_serializer(deprecate_fields=IGNORED_FIELDS)
class StreamAnswer(serializers.ModelSerializer[MemoryStream]):
    """A memory stream."""

    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    user_id = serializers.CharField(source="user.user_id", default=None, allow_null=True)
    extraction_prompt = serializers.CharField(allow_null=True, help_text=HIDDEN_HELP)
    consolidation_prompt = serializers.CharField(allow_null=True, help_text=HIDDEN_HELP)

    class Meta:
        model = MemoryStream
        fields = (
            "stream_id",
            "uri",
            "stream_type",
            "agent_id",
            "user_id",
            "session_id",
            "name",
            *STREAM_FIELDS,
            "last_updated_at",
        )
        extra_kwargs: ClassVar = {name: {"help_text": IGNORED_HELP} for name in IGNORED_FIELDS}

    def to_representation(self, stream: MemoryStream) -> dict[str, Any]:
        """Hide a shard's prompts from a user's key, because these prompts belong to the operator."""
        data = super().to_representation(stream)
        request = self.context.get("request")
        is_hidden = stream.is_shard and not (request and key_of(request).user_id is None)
        return data | dict.fromkeys(PROMPT_FIELDS) if is_hidden else data


class StreamLine(serializers.Serializer[Any]):
    """A line of a stream's text and its sources."""

    text = serializers.CharField()
    is_by_hand = serializers.BooleanField(
        help_text="Whether the line was written by hand. Consolidations don't change such a line."
    )
    observations = serializers.ListField(
        child=serializers.CharField(), help_text="Addresses of the observations that were merged into the line."
    )


@extend_schema_serializer(deprecate_fields=IGNORED_FIELDS)
class StreamDetail(StreamAnswer):
    """A memory stream, with the lines of its consolidated text."""

    lines = serializers.SerializerMethodField()

    class Meta:
        model = MemoryStream
        fields = (*StreamAnswer.Meta.fields, "lines")

    @extend_schema_field(StreamLine(many=True))
    def get_lines(self, stream: MemoryStream) -> list[dict[str, Any]]:
        lines = list(stream.atoms.lines())
        uris = {atom.pk: atom.uri for atom in stream.atoms.filter(merged_into__in=lines).only("atom_id")}
        return [
            {
                "text": line.content,
                "is_by_hand": not line.engine,
                "observations": [uris[pk] for pk in line.carries if pk in uris],
            }
            for line in lines
        ]


class ShardExists(Conflict):
    """A shard with this name already exists."""

    code = "already_there"


def streams_visible_to(person: UserProfile | None, application: int) -> QuerySet[MemoryStream]:
    """Return the streams visible to a person's requests: the person's own streams and the application's shards."""
    seen = Q(user=None, application=application)
    seen |= Q(user=person) if person else Q()
    return MemoryStream.objects.filter(seen).select_related("user", "session")


class ServiceChangesShards(BasePermission):
    """Only a service key may change a shard."""

    message = "A user's API key can't change a shard, which all users of an agent share. Use a service key."

    def has_object_permission(self, request: Request, view: Any, obj: MemoryStream) -> bool:
        return request.method in SAFE_METHODS or not obj.is_shard or key_of(request).user_id is None


class BaseStreamViewSet(PersonViewSet[M]):
    """A resource of the streams that a person's requests can see."""

    permission_classes = (HasScope, ServiceChangesShards)

    def stream(self) -> MemoryStream:
        """Return the stream in the URL. Check that the key may use it."""
        seen = streams_visible_to(self.person, self.application)
        stream = one_or_404(seen, stream_id=self.kwargs["stream_id"])
        self.check_object_permissions(self.request, stream)
        return stream

    def changeable(self) -> MemoryStream:
        """Return the stream. If it is a shard, allow the transaction to change it."""
        stream = self.stream()
        if stream.is_shard:
            allow_shared_changes()
        return stream


@extend_schema_view(
    list=extend_schema(
        description="Return the streams of a person and the shards of all agents, most recently changed first."
    ),
    retrieve=extend_schema(
        description="Return a stream with its settings, and the lines of its text with their sources."
    ),
)
class StreamViewSet(ListModelMixin, RetrieveModelMixin, BaseStreamViewSet[MemoryStream]):
    serializer_class = StreamAnswer
    lookup_field = "stream_id"
    lookup_value_converter = "uuid"
    inputs = {"list": StreamsQuery, "create": ShardInput, "partial_update": StreamPatch}
    answers = {"retrieve": StreamDetail, "create": {201: StreamAnswer}, "consolidate": {202: Accepted}}
    refuses = {"create": [ShardExists], "undo": [CannotUndo]}
    scopes = {"create": "admin", "partial_update": "admin", "undo": "admin"}
    filters = {"stream_type": "stream_type", "agent_id": "agent_id", "session_id": "session__session_id"}
    person_optional = ("create",)

    def get_queryset(self) -> QuerySet[MemoryStream]:
        return streams_visible_to(self.person, self.application).order_by("-last_updated_at", "-id")

    def create(self, request: Request) -> Response:
        """Create a shard, which is memory shared by all users of an agent. Returns 409 if the name is taken."""
        defaults = LESSONS_DEFAULTS if self.validated_data["name"] == LESSONS else SHARD_DEFAULTS
        scope = {"stream_type": MemoryStream.Type.AGENT, "application_id": self.application}
        stream = MemoryStream(**scope, **asdict(defaults) | self.validated_data)
        self.check_object_permissions(request, stream)
        allow_shared_changes()
        _check_limits(stream)
        if not insert_if_missing(stream):
            raise ShardExists(f"This agent already has a shard {stream.name}.")
        if stream.pinned_content:
            pin_text(stream, stream.pinned_content, actor=self.actor)
        if stream.consolidated_content:
            write_text(stream, stream.consolidated_content, actor=self.actor)
        return self.created(stream, is_new=True)

    def partial_update(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Change the settings or the text of a stream."""
        stream, values = self.changeable(), dict(self.validated_data)
        for name, value in values.items():
            setattr(stream, name, value)
        _check_limits(stream)
        if "pinned_content" in values:
            pin_text(stream, values["pinned_content"], actor=self.actor)
        if "consolidated_content" in values:
            write_text(stream, values.pop("consolidated_content"), actor=self.actor)
        update(stream, values | {"last_updated_at": timezone.now()})
        return self.answer(stream)

    @action(detail=True, methods=["post"])
    def consolidate(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Queue a consolidation, even if only a few observations are waiting."""
        stream = self.changeable()
        job = Job.objects.request(Consolidate.name, None, stream=stream, requested_by=self.actor, force=True)
        return self.answer({"job_id": job.job_id}, status.HTTP_202_ACCEPTED)

    @action(detail=True, methods=["post"])
    def undo(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Undo the last consolidation and restore the earlier text.

        The absorbed observations wait for the next consolidation.
        """
        undo(self.changeable(), requested_by=self.actor)
        return self.answer(self.stream())


def _check_limits(stream: MemoryStream) -> None:
    try:
        stream.clean()
    except InvalidStream as error:
        raise ValidationError(error.message_dict, CONTRADICTORY) from error
