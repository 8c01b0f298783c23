"""Retraction of what everybody sees in a shard, over REST: it is nobody's, so no call about a person reaches it."""

import uuid
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.response import Response

from moments_app.interfaces.api.retractions import (
    RetractionAnswer,
    RetractionList,
    RetractionPreview,
    answer_items,
)
from moments_app.models import MemoryStream, Retraction
from moments_app.models.retraction import CannotPutBack, RetractionQuerySet
from moments_app.provenance.retract import MOST_TURNS, CannotRetract
from moments_app.provenance.undo import undo_retraction
from sessions_app.api.fields import CONTRADICTORY, BooleanField, PublicIdField, StrictSerializer, TextField, UUIDField
from sessions_app.api.pages import AnyPageQuery
from sessions_app.api.person import key_of
from sessions_app.api.person_view import PersonView, one_or_404, operation


class ShardRetractionInput(StrictSerializer):
    """What is no longer to be believed of a shard."""

    atom_ids = serializers.ListField(
        child=UUIDField(), min_length=1, max_length=MOST_TURNS, required=False, help_text="Items that everybody sees."
    )
    written_by = PublicIdField(required=False, help_text="Instead: all that this key or operator wrote there directly.")
    reason = TextField(max_length=2_000, help_text="For whoever reads about it later.")
    preview = BooleanField(default=False, help_text="Only say what would be withdrawn.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that one thing is named: items or their writer."""
        if ("atom_ids" in attrs) == ("written_by" in attrs):
            raise serializers.ValidationError("Name items, or who wrote them.", CONTRADICTORY)
        return attrs


class ShardView(PersonView):
    """A call about a shard of the key's application, which finds it by itself: its rows are no person's."""

    scopes = {"GET": "admin", "POST": "admin"}

    def shard(self, stream_id: uuid.UUID) -> MemoryStream:
        """Return the shard.

        Raises:
            PermissionDenied: the key is one person's.
            NotFound: there is none in the application.
        """
        if key_of(self.request).user_id is not None:
            raise PermissionDenied("A user's key can't change what all users of an agent share.")
        shards = MemoryStream.objects.filter(stream_type=MemoryStream.Type.AGENT, application=self.application)
        return one_or_404(shards, stream_id=stream_id)

    def retractions(self, stream_id: uuid.UUID) -> RetractionQuerySet:
        """Return the shard's retractions."""
        return Retraction.objects.of_shard(self.shard(stream_id)).select_related("stream")


class ShardRetractionsView(ShardView):
    """A shard's retractions."""

    @operation(
        RetractionList,
        query=AnyPageQuery,
        operation_id="shardretractions_list",
        needs_person=False,
        in_transaction=False,
        sees_all=True,
    )
    def get(self, stream_id: uuid.UUID) -> Response:
        """Retractions of what everybody sees in a shard, newest first."""
        return self.page(RetractionList, self.retractions(stream_id).newest_first())

    @operation(
        {201: RetractionAnswer, 200: RetractionPreview},
        body=ShardRetractionInput,
        refuses=[CannotRetract],
        operation_id="shardretractions_create",
        needs_person=False,
        in_transaction=False,
        sees_all=True,
        is_long=True,
    )
    def post(self, stream_id: uuid.UUID) -> Response:
        """Retracts what was written into a shard for all; with `preview` only says what that would withdraw (200)."""
        return answer_items(self.shard(stream_id), self.body, self.actor)


class UndoShardRetractionView(ShardView):
    """The undoing of a shard's retraction."""

    @operation(
        RetractionAnswer,
        refuses=[CannotRetract, CannotPutBack],
        operation_id="shardretractions_undo",
        needs_person=False,
        in_transaction=False,
        sees_all=True,
        is_long=True,
    )
    def post(self, stream_id: uuid.UUID, retraction_id: uuid.UUID) -> Response:
        """Everybody sees the items again; the newest retraction goes first."""
        retraction = one_or_404(self.retractions(stream_id), retraction_id=retraction_id)
        return Response(RetractionAnswer(undo_retraction(retraction, requested_by=self.actor)).data)
