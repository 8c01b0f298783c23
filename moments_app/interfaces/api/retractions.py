"""Retraction over REST.

What was made of a turn stands in tables that requests may not change; so the views that retract and undo, which need an
admin's key, work as the tables' owner and filter by person themselves.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.response import Response

from moments_app.models import Retraction
from moments_app.models.retraction import CannotPutBack, RetractionQuerySet
from moments_app.provenance.retract import MOST_TURNS, CannotRetract, Preview, preview, retract
from moments_app.provenance.retract_items import ItemsPreview, Named, Owner, preview_items, retract_items
from moments_app.provenance.undo import undo_retraction
from sessions_app.api.fields import (
    CONTRADICTORY,
    SEQUENCE_MAX,
    BooleanField,
    IntegerField,
    PublicIdField,
    TextField,
    UUIDField,
)
from sessions_app.api.pages import PageAnswer, PageQuery
from sessions_app.api.person import PersonQuery
from sessions_app.api.person_view import PersonView, created, one_or_404, operation
from sessions_app.api.sessions import session_or_404
from sessions_app.models import UserProfile

NAMES_OF_ITEMS = ("atom_ids", "entity_ids", "written_by")


class RetractionInput(PersonQuery):
    """What is no longer to be believed."""

    session_id = PublicIdField(required=False)
    sequences = serializers.ListField(
        child=IntegerField(min_value=0, max_value=SEQUENCE_MAX),
        min_length=1,
        max_length=MOST_TURNS,
        required=False,
        allow_null=True,
        default=None,
        help_text="Of the turns; left out: all the session has.",
    )
    atom_ids = serializers.ListField(
        child=UUIDField(),
        min_length=1,
        max_length=MOST_TURNS,
        required=False,
        help_text="Items that somebody wrote directly, instead of turns.",
    )
    entity_ids = serializers.ListField(
        child=UUIDField(),
        min_length=1,
        max_length=MOST_TURNS,
        required=False,
        help_text="Tasks, goals and problems, instead of turns.",
    )
    written_by = PublicIdField(
        required=False, help_text="Instead: all that this key or operator wrote directly, as `written_by` names it."
    )
    reason = TextField(max_length=2_000, help_text="For whoever reads about it later.")
    preview = BooleanField(default=False, help_text="Only say what would be withdrawn.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that one thing is named: turns, items or their writer."""
        named = [name for name in ("session_id", *NAMES_OF_ITEMS) if name in attrs]
        if len(named) != 1 or (attrs["sequences"] is not None and named != ["session_id"]):
            told = "Name a session, with sequences or without; or items; or who wrote them."
            raise serializers.ValidationError(told, CONTRADICTORY)
        return attrs


class RetractionAnswer(serializers.ModelSerializer[Retraction]):
    """What was retracted, and how much was withdrawn with it."""

    user_id = serializers.CharField(source="user.user_id", default=None, allow_null=True)
    stream_id = serializers.UUIDField(
        source="stream.stream_id", default=None, allow_null=True, help_text="Of the shard in which everybody saw them."
    )
    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    atom_ids = serializers.ListField(source="item_ids", child=serializers.UUIDField(), allow_null=True)
    entity_ids = serializers.ListField(child=serializers.UUIDField(), allow_null=True)
    turns = serializers.IntegerField(source="result.turns")
    withdrawn = serializers.DictField(source="result.withdrawn", child=serializers.IntegerField())

    class Meta:
        model = Retraction
        fields = (
            "retraction_id",
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


class RetractionList(PageAnswer):
    retractions = RetractionAnswer(many=True)


class RetractionPreview(serializers.Serializer[Any]):
    """What a retraction would withdraw, and about what it costs to make the rest anew."""

    turns = serializers.IntegerField()
    items = serializers.IntegerField(help_text="Those that were written directly.")
    moment_keys = serializers.ListField(child=serializers.CharField())
    withdrawn = serializers.DictField(child=serializers.IntegerField(), help_text="Rows by kind.")
    engine_calls = serializers.IntegerField()


def retractions_of(person: UserProfile | None) -> RetractionQuerySet:
    """Return the retractions of a person."""
    return Retraction.objects.for_user(person).select_related("user", "session")


class OwnerView(PersonView):
    """A call that makes its changes as the tables' owner, outside the person's transaction."""

    def find_person(self) -> UserProfile | None:
        """Return the person; None for nobody, or for somebody whom the key may not see."""
        user_id = self.user_id()
        return UserProfile.objects.named(user_id, self.application) if user_id is not None else None


class RetractionsView(OwnerView):
    """A person's retractions."""

    scopes = {"GET": "admin", "POST": "admin"}

    @operation(RetractionList, query=PageQuery)
    def get(self) -> Response:
        """Retractions of a person, newest first."""
        return self.page(RetractionList, retractions_of(self.person).newest_first())

    @operation(
        {201: RetractionAnswer, 200: RetractionPreview},
        body=RetractionInput,
        refuses=[CannotRetract],
        in_transaction=False,
        sees_all=True,
        is_long=True,
    )
    def post(self) -> Response:
        """Retracts turns, or what was written directly; with `preview` only says what that would withdraw (200)."""
        if "session_id" not in self.body:
            self.person = self.find_person()
            return answer_items(self.found_person, self.body, self.actor)
        session = session_or_404(self.find_person(), self.body["session_id"])
        sequences = self.body["sequences"]
        if self.body["preview"]:
            return _previewed(preview(session, sequences))
        retraction = retract(session, sequences, reason=self.body["reason"], requested_by=self.actor)
        return created(RetractionAnswer(retraction), is_new=True)


def answer_items(owner: Owner, body: Mapping[str, Any], actor: str) -> Response:
    """Retract what a body names of a person's or a shard's items, or say what that would withdraw."""
    named = Named(**{name: body[name] for name in NAMES_OF_ITEMS if name in body})
    if body["preview"]:
        return _previewed(preview_items(owner, named))
    return created(
        RetractionAnswer(retract_items(owner, named, reason=body["reason"], requested_by=actor)), is_new=True
    )


def _previewed(found: Preview | ItemsPreview) -> Response:
    none = {"turns": 0, "items": 0, "moment_keys": []}
    return Response(RetractionPreview(none | vars(found)).data)


class RetractionView(PersonView):
    """One retraction."""

    scopes = {"GET": "admin"}

    @operation(RetractionAnswer, query=PersonQuery)
    def get(self, retraction_id: uuid.UUID) -> Response:
        """What was retracted, why, and whether it still is."""
        return Response(RetractionAnswer(one_or_404(retractions_of(self.person), retraction_id=retraction_id)).data)


class UndoView(OwnerView):
    """The undoing of a retraction."""

    scopes = {"POST": "admin"}

    @operation(
        RetractionAnswer,
        body=PersonQuery,
        refuses=[CannotRetract, CannotPutBack],
        operation_id="retractions_undo",
        in_transaction=False,
        sees_all=True,
        is_long=True,
    )
    def post(self, retraction_id: uuid.UUID) -> Response:
        """Believes the turns again and puts back what was withdrawn; the newest retraction goes first."""
        retraction = one_or_404(retractions_of(self.find_person()), retraction_id=retraction_id)
        return Response(RetractionAnswer(undo_retraction(retraction, requested_by=self.actor)).data)
