"""Retract a person's turns and items, or the shared items of a shard, over REST.

The database role of requests can't change the tables with derived rows. So the views that retract and undo use the role
of the tables' owner and filter by person themselves. They require a key with the scope `admin`.
"""

import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.models import MemoryStream, Retraction
from moments_app.models.retraction import CannotRestoreRows, RetractionQuerySet
from moments_app.provenance.retract import MAX_TURNS, CannotRetract, Preview, TurnsAreArchived, preview, retract
from moments_app.provenance.retract_items import ItemSelection, Owner, preview_items, retract_items
from moments_app.provenance.undo import sessions_to_restore, undo_retraction
from sessions_app.api.fields import (
    CONTRADICTORY,
    SEQUENCE_MAX,
    BooleanField,
    IntegerField,
    PersonQuery,
    PublicIdField,
    StrictSerializer,
    TextField,
    UUIDField,
)
from sessions_app.api.permissions import HasAdminScope, IsServiceKey
from sessions_app.api.viewsets import ApiViewSet, PersonViewSet, one_or_404, session_or_404
from sessions_app.limited_operators import unlimited
from sessions_app.models import Session, UserProfile
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.retention.restore import CannotRestore, restore_archive

ITEM_FIELDS = ("atom_ids", "entity_ids", "written_by")


class RetractionInput(PersonQuery):
    """The turns or items to retract."""

    session_id = PublicIdField(required=False)
    sequences = serializers.ListField(
        child=IntegerField(min_value=0, max_value=SEQUENCE_MAX),
        min_length=1,
        max_length=MAX_TURNS,
        required=False,
        allow_null=True,
        default=None,
        help_text="Sequence numbers of the turns to retract. Default: all turns of the session.",
    )
    atom_ids = serializers.ListField(
        child=UUIDField(),
        min_length=1,
        max_length=MAX_TURNS,
        required=False,
        help_text="Ids of the facts and observations to retract, which must be items that a client or operator wrote "
        "directly.",
    )
    entity_ids = serializers.ListField(
        child=UUIDField(),
        min_length=1,
        max_length=MAX_TURNS,
        required=False,
        help_text="Ids of tasks, goals and problems to retract.",
    )
    written_by = PublicIdField(
        required=False,
        help_text="Retract all items that this API key or operator wrote directly. Send the items' `written_by`.",
    )
    reason = TextField(max_length=2_000)
    leave = serializers.ListField(
        child=TextField(max_length=1_000),
        max_length=MAX_TURNS,
        required=False,
        default=list,
        help_text="Addresses of answers that should stay in memory even if they repeat retracted turns or items.",
    )
    preview = BooleanField(
        default=False, help_text="If true, nothing is changed. The response lists the memory that would be removed."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require exactly one of: turns, items, the writer of items."""
        named = [name for name in ("session_id", *ITEM_FIELDS) if name in attrs]
        if len(named) != 1 or (attrs["sequences"] is not None and named != ["session_id"]):
            message = "Send session_id (with or without sequences), items, entities or written_by."
            raise serializers.ValidationError(message, CONTRADICTORY)
        return attrs


class RetractionAnswer(serializers.ModelSerializer[Retraction]):
    """A retraction and the number of withdrawn rows."""

    user_id = serializers.CharField(source="user.user_id", default=None, allow_null=True)
    stream_id = serializers.UUIDField(
        source="stream.stream_id",
        default=None,
        allow_null=True,
        help_text="The shard that contained the retracted items. Null if the retracted items belonged to a person.",
    )
    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    atom_ids = serializers.ListField(source="item_ids", child=serializers.UUIDField(), allow_null=True)
    entity_ids = serializers.ListField(child=serializers.UUIDField(), allow_null=True)
    turns = serializers.IntegerField(source="result.turns")
    withdrawn = serializers.DictField(source="result.withdrawn", child=serializers.IntegerField())
    cause_id = serializers.CharField(
        help_text="Id of the retraction that caused this one. Empty if no other retraction caused it."
    )

    class Meta:
        model = Retraction
        fields = (
            "retraction_id",
            "cause_id",
            "user_id",
            "stream_id",
            "session_id",
            "sequences",
            "atom_ids",
            "entity_ids",
            "reason",
            "requested_by",
            "turns",
            "withdrawn",
            "created_at",
            "undone_at",
        )


class RepeatedAnswer(serializers.Serializer[Any]):
    """An answer that repeats what would be retracted."""

    ref = serializers.CharField()
    content = serializers.CharField(source="turn.content")
    problem = serializers.CharField(
        help_text="Why the answer can't be retracted. Empty if the answer can be retracted."
    )


class RetractionPreview(serializers.Serializer[Any]):
    """What a retraction would withdraw, and the estimated cost of rebuilding the rest."""

    turns = serializers.IntegerField(
        help_text="Number of retracted turns, including the assistant's answers that repeat a retracted turn."
    )
    items = serializers.IntegerField(help_text="Number of retracted items that a client or operator wrote directly.")
    moment_keys = serializers.ListField(child=serializers.CharField())
    withdrawn = serializers.DictField(
        child=serializers.IntegerField(), help_text="Number of withdrawn rows of each kind."
    )
    engine_calls = serializers.IntegerField()
    answers = RepeatedAnswer(many=True)


@extend_schema_view(
    list=extend_schema(description="Return the retractions of a person, newest first."),
    retrieve=extend_schema(description="Return a retraction: what it withdrew, why, and whether it was undone."),
)
class RetractionViewSet(ListModelMixin, RetrieveModelMixin, PersonViewSet[Retraction]):
    queryset = Retraction.objects.select_related("user", "session").newest_first()
    serializer_class = RetractionAnswer
    lookup_field = "retraction_id"
    lookup_value_converter = "uuid"
    permission_classes = (HasAdminScope,)
    inputs = {"create": RetractionInput}
    answers = {"create": {201: RetractionAnswer, 200: RetractionPreview}}
    refuses = {"create": [CannotRetract, CannotRestore], "undo": [CannotRetract, CannotRestoreRows]}
    own_transaction = ("create", "undo")
    long_running = ("create", "undo")

    @unlimited()
    def create(self, request: Request) -> Response:
        """Retract turns or directly written items. `preview` only returns the memory that would be removed (200).

        Archived turns are restored first, even for `preview`.
        """
        self.find_person()
        if "session_id" not in self.validated_data:
            return retract_or_preview_items(self.found_person, self.validated_data, self.actor)
        try:
            return self._retract_or_preview_turns()
        except TurnsAreArchived:
            self._restore(session_or_404(self.person, self.validated_data["session_id"]))
        return self._retract_or_preview_turns()

    def _retract_or_preview_turns(self) -> Response:
        session = session_or_404(self.person, self.validated_data["session_id"])
        sequences, reason = self.validated_data["sequences"], self.validated_data["reason"]
        leave = self.validated_data["leave"]
        if self.validated_data["preview"]:
            return _preview_response(preview(session, sequences, leave=leave))
        retraction = retract(session, sequences, reason=reason, requested_by=self.actor, leave=leave)
        return self.created(retraction, is_new=True)

    @action(detail=True, methods=["post"])
    @unlimited()
    def undo(self, request: Request, retraction_id: uuid.UUID) -> Response:
        """Undo a retraction and restore what it withdrew. The newest retraction must be undone first.

        Archived turns are restored first. An answer that repeated them stays retracted if its archive can't be read.
        """
        self.find_person()
        retraction = self.get_object()
        for session in sessions_to_restore(retraction) if retraction.may_be_undone else ():
            needed = session == retraction.session
            with suppress(CannotRestore) if needed else suppress(CannotRestore, CannotRetract):
                self._restore(session)
        return self.answer(undo_retraction(retraction, requested_by=self.actor))

    def _restore(self, session: Session) -> None:
        try:
            restore_archive(session, actor=self.actor)
        except ArchiveError as error:
            raise CannotRetract(str(error)) from error

    def find_person(self) -> None:
        """Set `person` without opening the person's transaction."""
        user_id = self.user_id()
        self.person = UserProfile.objects.named(user_id, self.application) if user_id is not None else None


def retract_or_preview_items(owner: Owner, body: Mapping[str, Any], actor: str) -> Response:
    selection = ItemSelection(**{name: body[name] for name in ITEM_FIELDS if name in body})
    leave = body.get("leave", ())
    if body["preview"]:
        return _preview_response(preview_items(owner, selection, leave=leave))
    retraction = retract_items(owner, selection, reason=body["reason"], requested_by=actor, leave=leave)
    return Response(RetractionAnswer(retraction).data, status.HTTP_201_CREATED)


def _preview_response(found: Preview) -> Response:
    return Response(RetractionPreview(found).data)


class ShardRetractionInput(StrictSerializer):
    """The shared items to retract."""

    atom_ids = serializers.ListField(
        child=UUIDField(),
        min_length=1,
        max_length=MAX_TURNS,
        required=False,
        help_text="Ids of the shared items to retract.",
    )
    written_by = PublicIdField(
        required=False,
        help_text="Retract all items that this API key or operator wrote directly into the shard.",
    )
    reason = TextField(max_length=2_000)
    preview = BooleanField(
        default=False, help_text="If true, nothing is changed. The response lists the memory that would be removed."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require either items or their writer."""
        if ("atom_ids" in attrs) == ("written_by" in attrs):
            raise serializers.ValidationError("Send items or written_by.", CONTRADICTORY)
        return attrs


@extend_schema_view(list=extend_schema(description="Return the retractions of a shard's items, newest first."))
class ShardRetractionViewSet(ListModelMixin, ApiViewSet[Retraction]):
    """The retractions of a shard of the key's application. A shard belongs to no person."""

    permission_classes = (HasAdminScope, IsServiceKey)
    serializer_class = RetractionAnswer
    lookup_field = "retraction_id"
    lookup_value_converter = "uuid"
    inputs = {"create": ShardRetractionInput}
    answers = {"create": {201: RetractionAnswer, 200: RetractionPreview}}
    refuses = {"create": [CannotRetract], "undo": [CannotRetract, CannotRestoreRows]}
    long_running = ("create", "undo")

    def acting(self) -> AbstractContextManager[None]:
        return unlimited()

    def get_queryset(self) -> RetractionQuerySet:
        return Retraction.objects.of_shard(self.shard()).select_related("stream").newest_first()

    def create(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Retract shared items of a shard. `preview` only returns the memory that would be removed (200)."""
        return retract_or_preview_items(self.shard(), self.validated_data, self.actor)

    @action(detail=True, methods=["post"])
    def undo(self, request: Request, stream_id: uuid.UUID, retraction_id: uuid.UUID) -> Response:
        """Undo a retraction and share the items again. The newest retraction must be undone first."""
        return self.answer(undo_retraction(self.get_object(), requested_by=self.actor))

    def shard(self) -> MemoryStream:
        shards = MemoryStream.objects.filter(stream_type=MemoryStream.Type.AGENT, application=self.application)
        return one_or_404(shards, stream_id=self.kwargs["stream_id"])
