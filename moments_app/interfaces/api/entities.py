"""Tasks, goals, problems and their links over REST, and the known people in a user's memory."""

import uuid
from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.models import Entity, EntityLink, KnownPerson, MemoryAtom
from moments_app.models.entity import EntityKind, EntityQuerySet, EntityStatus
from moments_app.models.known_person import KnownPersonQuerySet
from moments_app.streams.edit import add_entity, change_entity, delete_entity, lock_entity
from moments_app.streams.profile import profile_of
from sessions_app.api.fields import (
    CONTRADICTORY,
    AwareDateTimeField,
    ExternalIdField,
    PersonQuery,
    PublicIdField,
    TextField,
    UUIDField,
    WordsField,
)
from sessions_app.api.pagination import PageQuery
from sessions_app.api.viewsets import PersonViewSet, one_or_404, session_or_404
from sessions_app.database.sql import insert_if_missing
from sessions_app.transcript.append import IdTaken


class EntitiesQuery(PageQuery):
    kind = serializers.ChoiceField(choices=EntityKind.choices, required=False)
    status = serializers.ChoiceField(choices=EntityStatus.choices, required=False)
    text = TextField(max_length=1000, required=False, help_text="Words to search for in the title and the body.")


class EntityPatch(PersonQuery):
    """The fields of an entity that can be changed."""

    kind = serializers.ChoiceField(choices=EntityKind.choices, required=False)
    title = WordsField(max_length=255, required=False)
    body = TextField(max_length=10_000, allow_blank=True, required=False)
    status = serializers.ChoiceField(choices=EntityStatus.choices, required=False)
    due_at = AwareDateTimeField(required=False, allow_null=True)


class EntityInput(EntityPatch):
    """A new entity."""

    kind = serializers.ChoiceField(choices=EntityKind.choices)
    title = WordsField(max_length=255)
    external_id = ExternalIdField(
        help_text="Your own id for the entity. If a request is repeated with the same id, the entity is not"
        " added again.",
    )
    session_id = PublicIdField(required=False, help_text="The session in which the entity was mentioned.")


class EntityAnswer(serializers.ModelSerializer[Entity]):
    """A task, goal or problem that a client wrote, or that was learned from a conversation."""

    kind = serializers.ChoiceField(choices=EntityKind.choices)
    title = serializers.CharField()
    body = serializers.CharField()
    status = serializers.ChoiceField(choices=EntityStatus.choices)
    updated_at = serializers.DateTimeField()
    session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)

    class Meta:
        model = Entity
        fields = (
            "entity_id",
            "uri",
            "external_id",
            "kind",
            "title",
            "body",
            "status",
            "due_at",
            "session_id",
            "written_by",
            "created_at",
            "updated_at",
        )


class LinkQuery(PersonQuery):
    """Identifies a link of an entity."""

    to = UUIDField(help_text="The entity at the other end of the link.")
    relation = serializers.ChoiceField(choices=EntityLink.Relation.choices, default=EntityLink.Relation.RELATES_TO)


class LinkAnswer(serializers.Serializer[EntityLink]):
    """A link, read from left to right."""

    from_entity_id = serializers.UUIDField(source="from_entity.atom_id")
    relation = serializers.CharField()
    to_entity_id = serializers.UUIDField(source="to_entity.atom_id")


@extend_schema_view(
    list=extend_schema(description="Return the tasks, goals and problems of a person, most recently changed first."),
    retrieve=extend_schema(description="Return an entity."),
)
class EntityViewSet(ListModelMixin, RetrieveModelMixin, PersonViewSet[Entity]):
    queryset = Entity.objects.select_related("source_session").latest_first()
    serializer_class = EntityAnswer
    lookup_field = "atom_id"
    lookup_url_kwarg = "entity_id"
    lookup_value_converter = "uuid"
    inputs = {"list": EntitiesQuery, "create": EntityInput, "partial_update": EntityPatch}
    answers = {"create": {201: EntityAnswer, 200: EntityAnswer}}
    filters = {"kind": "kind", "status": EntityQuerySet.with_status, "text": EntityQuerySet.matching}
    creates_person = ("create",)
    refuses = {"create": [IdTaken]}

    def create(self, request: Request) -> Response:
        """Add an entity. If one with the same `external_id` exists, return it unchanged with 200.

        A withdrawn one has the `status` `dropped`.
        """
        session_id = self.validated_data.pop("session_id", None)
        session = session_or_404(self.person, session_id) if session_id else None
        values = self.validated_data | {"source_session": session}
        entity, is_new = add_entity(self.found_person, values, requested_by=self.actor)
        return self.created(entity, is_new=is_new)

    def partial_update(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Update an entity. Contexts don't include entities with the `status` `done` or `dropped`."""
        return self.answer(change_entity(self.get_object(), self.validated_data, requested_by=self.actor))

    def destroy(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Delete an entity and its links."""
        delete_entity(self.get_object(), requested_by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def get_object(self) -> Entity:
        """Return the entity, and lock it if it will be changed."""
        if self.action != "retrieve":
            lock_entity(super().get_object())
        entity: Entity = super().get_object()
        return entity


@extend_schema_view(list=extend_schema(description="Return the links of an entity in both directions."))
class LinkViewSet(ListModelMixin, PersonViewSet[EntityLink]):
    serializer_class = LinkAnswer
    inputs = {"create": LinkQuery, "destroy": LinkQuery}
    answers = {"create": {201: LinkAnswer, 200: LinkAnswer}}

    def get_queryset(self) -> QuerySet[EntityLink]:
        entity = self.entity(self.kwargs["entity_id"])
        links = EntityLink.objects.filter(Q(from_entity=entity) | Q(to_entity=entity), user=self.person)
        return links.select_related("from_entity", "to_entity").order_by("id")

    def create(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Link an entity to another one of the same person. If the link exists, return it with 200."""
        link = EntityLink(user=self.person, **self._ends(entity_id))
        is_new = insert_if_missing(link)
        return self.created(link, is_new=is_new)

    def destroy(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Delete a link."""
        if not EntityLink.objects.filter(user=self.person, **self._ends(entity_id)).delete()[0]:
            raise NotFound
        return Response(status=status.HTTP_204_NO_CONTENT)

    def entity(self, entity_id: uuid.UUID) -> Entity:
        return one_or_404(Entity.objects.for_user(self.person), atom_id=entity_id)  # type: ignore[no-any-return]

    def _ends(self, entity_id: uuid.UUID) -> dict[str, Any]:
        """Return the entities and the relation of a link. Raise `ValidationError` if it links an entity to itself."""
        to, relation = self.validated_data["to"], self.validated_data["relation"]
        if entity_id == to:
            raise ValidationError({"to": "to_entity must be another entity."}, CONTRADICTORY)
        return {"from_entity": self.entity(entity_id), "to_entity": self.entity(to), "relation": relation}


# --- known people, each with a profile that is derived from the facts about them ---


class PeopleQuery(PageQuery):
    name = TextField(
        max_length=255,
        required=False,
        help_text="Return only people with this name or alias, or with this first or last name. Case doesn't matter.",
    )
    after = PublicIdField(required=False, help_text="Key of the last person on the previous page.")


class KnownPersonRow(serializers.ModelSerializer[KnownPerson]):
    """Another person in the user's memory."""

    class Meta:
        model = KnownPerson
        fields: tuple[str, ...] = ("key", "name", "aliases", "relationship", "created_at")


class KnownPersonAnswer(KnownPersonRow):
    """Another person in the user's memory, with a profile derived from current facts."""

    summary = serializers.CharField(source="profile.summary")
    interests = serializers.ListField(source="profile.interests", child=serializers.CharField())
    preferred_topics = serializers.ListField(source="profile.preferred_topics", child=serializers.CharField())

    class Meta(KnownPersonRow.Meta):
        fields = (*KnownPersonRow.Meta.fields, "summary", "interests", "preferred_topics")


@extend_schema_view(list=extend_schema(description="Return the other people in a user's memory, newest first."))
class PeopleViewSet(ListModelMixin, PersonViewSet[KnownPerson]):
    queryset = KnownPerson.objects.with_statements().newest_first()
    serializer_class = KnownPersonRow
    lookup_field = "key"
    lookup_value_converter = "public_id"
    inputs = {"list": PeopleQuery}
    answers = {"retrieve": KnownPersonAnswer}
    filters = {"name": KnownPersonQuerySet.named}

    def retrieve(self, request: Request, user_id: str, key: str) -> Response:
        """Return another person in a user's memory, with a profile."""
        person: Any = self.get_object()
        person.profile = profile_of(MemoryAtom.objects.current().filter(about=person), self.found_person.zone)
        return self.answer(person)
