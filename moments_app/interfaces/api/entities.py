"""Tasks, goals and problems over REST, and the links between them."""

import uuid
from typing import Any

from django.db.models import Q
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.response import Response

from moments_app.models import Entity, EntityLink
from moments_app.models.entity import EntityQuerySet
from sessions_app.api.fields import (
    CONTRADICTORY,
    AwareDateTimeField,
    ExternalIdField,
    PublicIdField,
    TextField,
    UUIDField,
)
from sessions_app.api.pages import PageAnswer, PageQuery
from sessions_app.api.person import PersonQuery
from sessions_app.api.person_view import PersonView, created, one_or_404, operation, update
from sessions_app.api.sessions import session_or_404
from sessions_app.daily_limits import count_values
from sessions_app.insert import insert_unless_there


class EntitiesQuery(PageQuery):
    """Filters of a list of entities."""

    kind = serializers.ChoiceField(choices=Entity.Kind.choices, required=False)
    status = serializers.ChoiceField(choices=Entity.Status.choices, required=False)
    text = TextField(max_length=1000, required=False, help_text="Words of title or body.")


class EntityPatch(PersonQuery):
    """What can be changed of an entity."""

    kind = serializers.ChoiceField(choices=Entity.Kind.choices, required=False)
    title = TextField(max_length=255, required=False)
    body = TextField(max_length=10_000, allow_blank=True, required=False)
    status = serializers.ChoiceField(choices=Entity.Status.choices, required=False)
    due_at = AwareDateTimeField(required=False, allow_null=True)


class EntityInput(EntityPatch):
    """A new entity."""

    kind = serializers.ChoiceField(choices=Entity.Kind.choices)
    title = TextField(max_length=255)
    external_id = ExternalIdField(
        help_text="Your own id of it. What has one can be sent again after a lost answer, whatever was changed since.",
    )
    session_id = PublicIdField(required=False, help_text="The session it came up in.")


class EntityAnswer(serializers.ModelSerializer[Entity]):
    """A task, goal or problem."""

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


class EntityList(PageAnswer):
    """A page of entities."""

    entities = EntityAnswer(many=True)


class LinkQuery(PersonQuery):
    """Names a link of an entity."""

    to = UUIDField(help_text="The other entity.")
    relation = serializers.ChoiceField(choices=EntityLink.Relation.choices, default=EntityLink.Relation.RELATES_TO)


class LinkAnswer(serializers.Serializer[EntityLink]):
    """A link, read from left to right."""

    from_entity_id = serializers.UUIDField(source="from_entity.entity_id")
    relation = serializers.CharField()
    to_entity_id = serializers.UUIDField(source="to_entity.entity_id")


class LinkList(PageAnswer):
    """A page of an entity's links, in both directions."""

    links = LinkAnswer(many=True)


class EntityPersonView(PersonView):
    """A call about a person's entities."""

    def entities(self) -> EntityQuerySet:
        """Return the person's entities."""
        return Entity.objects.for_user(self.person).select_related("source_session")

    def entity(self, entity_id: uuid.UUID) -> Entity:
        """Return the person's entity; one that isn't there and somebody else's are answered alike."""
        return one_or_404(self.entities(), entity_id=entity_id)


class EntitiesView(EntityPersonView):
    """A person's entities."""

    @operation(EntityList, query=EntitiesQuery)
    def get(self) -> Response:
        """Tasks, goals and problems of a person, latest change first."""
        rows = self.filtered(self.entities().defer("search_vector"), kind="kind", status="status")
        rows = rows.matching(self.query["text"]) if "text" in self.query else rows
        return self.page(EntityList, rows.latest_first())

    @operation({201: EntityAnswer, 200: EntityAnswer}, body=EntityInput, creates_person=True)
    def post(self) -> Response:
        """Adds one; answers 200 with the one whose `external_id` this is, as it stands."""
        session_id = self.body.pop("session_id", None)
        session = session_or_404(self.person, session_id) if session_id else None
        fields = self.body | {"source_session": session, "written_by": self.actor}
        entity = Entity(user=self.found_person, **fields)
        is_new = insert_unless_there(entity)
        if is_new:
            count_values(*self.body.values())
        else:
            entity = self.entities().get(external_id=entity.external_id)
        return created(EntityAnswer(entity), is_new=is_new)


class EntityView(EntityPersonView):
    """One entity."""

    @operation(EntityAnswer, query=PersonQuery)
    def get(self, entity_id: uuid.UUID) -> Response:
        """The whole entity."""
        return Response(EntityAnswer(self.entity(entity_id)).data)

    @operation(EntityAnswer, body=EntityPatch)
    def patch(self, entity_id: uuid.UUID) -> Response:
        """Changes it: `status` `done` or `dropped` takes it out of contexts."""
        entity = self.entity(entity_id)
        update(entity, self.body)
        return Response(EntityAnswer(entity).data)

    @operation({204: OpenApiResponse(description="Deleted.")}, query=PersonQuery)
    def delete(self, entity_id: uuid.UUID) -> Response:
        """Deletes it with its links."""
        self.entity(entity_id).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


class LinksView(EntityPersonView):
    """The links of an entity."""

    @operation(LinkList, query=PageQuery)
    def get(self, entity_id: uuid.UUID) -> Response:
        """Links in both directions."""
        entity = self.entity(entity_id)
        links = EntityLink.objects.filter(Q(from_entity=entity) | Q(to_entity=entity), user=self.person)
        return self.page(LinkList, links.select_related("from_entity", "to_entity").order_by("id"))

    @operation({201: LinkAnswer, 200: LinkAnswer}, body=LinkQuery)
    def post(self, entity_id: uuid.UUID) -> Response:
        """Links it to another of the same person; answers 200 when the link is there."""
        link = EntityLink(user=self.person, **self._ends(entity_id, self.body))
        is_new = insert_unless_there(link)
        return created(LinkAnswer(link), is_new=is_new)

    @operation({204: OpenApiResponse(description="Deleted.")}, query=LinkQuery)
    def delete(self, entity_id: uuid.UUID) -> Response:
        """Takes a link away."""
        if not EntityLink.objects.filter(user=self.person, **self._ends(entity_id, self.query)).delete()[0]:
            raise NotFound
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _ends(self, entity_id: uuid.UUID, named: dict[str, Any]) -> dict[str, Any]:
        """Return the link that a valid request names, as the fields of its row."""
        if entity_id == named["to"]:
            raise ValidationError({"to": "An entity can't be linked to itself."}, CONTRADICTORY)
        ends = {"from_entity": self.entity(entity_id), "to_entity": self.entity(named["to"])}
        return ends | {"relation": named["relation"]}
