"""Retraction of a shard's shared items over REST. They belong to no person, so other calls don't reach them."""

import uuid
from contextlib import AbstractContextManager
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.interfaces.api.retractions import (
    RetractionAnswer,
    RetractionPreview,
    answer_items,
)
from moments_app.models import MemoryStream, Retraction
from moments_app.models.retraction import CannotPutBack, RetractionQuerySet
from moments_app.provenance.retract import MOST_TURNS, CannotRetract
from moments_app.provenance.undo import undo_retraction
from sessions_app.api.fields import CONTRADICTORY, BooleanField, PublicIdField, StrictSerializer, TextField, UUIDField
from sessions_app.api.permissions import HasAdminScope, IsOfService
from sessions_app.api.viewsets import ApiViewSet, one_or_404
from sessions_app.limited_operators import unlimited


class ShardRetractionInput(StrictSerializer):
    """The shared items to retract."""

    atom_ids = serializers.ListField(
        child=UUIDField(),
        min_length=1,
        max_length=MOST_TURNS,
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
        """Check that exactly one thing is named: items or their writer."""
        if ("atom_ids" in attrs) == ("written_by" in attrs):
            raise serializers.ValidationError("Send items or written_by.", CONTRADICTORY)
        return attrs


@extend_schema_view(list=extend_schema(description="Return the retractions of a shard's items, newest first."))
class ShardRetractionViewSet(ListModelMixin, ApiViewSet[Retraction]):
    """The retractions of a shard of the key's application. A shard belongs to no person."""

    permission_classes = (HasAdminScope, IsOfService)
    serializer_class = RetractionAnswer
    lookup_field = "retraction_id"
    lookup_value_converter = "uuid"
    inputs = {"create": ShardRetractionInput}
    answers = {"create": {201: RetractionAnswer, 200: RetractionPreview}}
    refuses = {"create": [CannotRetract], "undo": [CannotRetract, CannotPutBack]}
    long_running = ("create", "undo")

    def acting(self) -> AbstractContextManager[None]:
        return unlimited()

    def get_queryset(self) -> RetractionQuerySet:
        """Return the shard's retractions."""
        return Retraction.objects.of_shard(self.shard()).select_related("stream").newest_first()

    def create(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Retract shared items of a shard. `preview` only returns the memory that would be removed (200)."""
        return answer_items(self.shard(), self.validated_data, self.actor)

    @action(detail=True, methods=["post"])
    def undo(self, request: Request, stream_id: uuid.UUID, retraction_id: uuid.UUID) -> Response:
        """Undo a retraction and share the items again. The newest retraction must be undone first."""
        return self.answer(undo_retraction(self.get_object(), requested_by=self.actor))

    def shard(self) -> MemoryStream:
        """Return the shard in the URL."""
        shards = MemoryStream.objects.filter(stream_type=MemoryStream.Type.AGENT, application=self.application)
        return one_or_404(shards, stream_id=self.kwargs["stream_id"])
