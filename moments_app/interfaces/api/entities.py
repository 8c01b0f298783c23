"""Tasks, goals and problems over REST. A view parses, calls one thing, presents."""

import uuid

from django.db.models import Q
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from moments_app.interfaces.api import serializers as shapes
from moments_app.models import Entity, EntityLink
from sessions_app.api.person import acting_as
from sessions_app.api.requests import paged, parsed, query, session_or_404, update
from sessions_app.api.serializers import PageQuery, PersonQuery
from sessions_app.insert import insert_unless_there
from sessions_app.models import UserProfile


def entity_or_404(user: UserProfile | None, entity_id: uuid.UUID) -> Entity:
    """This person's entity; one that isn't there and somebody else's are answered alike."""
    entity = Entity.objects.for_user(user).select_related("source_session").filter(entity_id=entity_id).first()
    if entity is None:
        raise NotFound
    return entity


class EntitiesView(APIView):
    """A person's entities."""

    @extend_schema(parameters=[shapes.EntitiesQuery], responses=shapes.EntityList, operation_id="entities_list")
    def get(self, request: Request) -> Response:
        """Tasks, goals and problems of a person, latest change first."""
        asked = query(shapes.EntitiesQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            rows = Entity.objects.for_user(user).select_related("source_session").defer("search_vector")
            rows = rows.filter(**{name: asked[name] for name in ("kind", "status") if name in asked})
            rows = rows.matching(asked["text"]) if "text" in asked else rows
            return paged(rows.latest_first(), "entities", shapes.EntityAnswer, asked)

    @extend_schema(request=shapes.EntityInput, responses={201: shapes.EntityAnswer})
    def post(self, request: Request) -> Response:
        """Adds one."""
        asked = parsed(shapes.EntityInput, request.data).validated_data
        session_id = asked.pop("session_id", None)
        with acting_as(request, asked.pop("user_id", None), create=True) as user:
            assert user is not None  # it was made
            session = session_or_404(user, session_id) if session_id else None
            entity = Entity.objects.create(user=user, source_session=session, **asked)
        return Response(shapes.EntityAnswer(entity).data, status=status.HTTP_201_CREATED)


class EntityView(APIView):
    """One entity."""

    @extend_schema(parameters=[PersonQuery], responses=shapes.EntityAnswer, operation_id="entities_get")
    def get(self, request: Request, entity_id: uuid.UUID) -> Response:
        """The whole entity."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return Response(shapes.EntityAnswer(entity_or_404(user, entity_id)).data)

    @extend_schema(request=shapes.EntityPatch, responses=shapes.EntityAnswer)
    def patch(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Changes it: `status` `done` or `dropped` takes it out of contexts."""
        asked = parsed(shapes.EntityPatch, request.data).validated_data
        with acting_as(request, asked.pop("user_id", None)) as user:
            entity = entity_or_404(user, entity_id)
            update(entity, asked)
        return Response(shapes.EntityAnswer(entity).data)

    @extend_schema(parameters=[PersonQuery], responses={204: OpenApiResponse(description="Deleted.")})
    def delete(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Deletes it with its links."""
        asked = query(PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            entity_or_404(user, entity_id).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


class LinksView(APIView):
    """How an entity hangs together with others."""

    @extend_schema(parameters=[PageQuery], responses=shapes.LinkList, operation_id="entity_links_list")
    def get(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Links in both directions."""
        asked = query(PageQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            entity = entity_or_404(user, entity_id)
            own = EntityLink.objects.filter(Q(from_entity=entity) | Q(to_entity=entity), user=user)
            return paged(
                own.select_related("from_entity", "to_entity").order_by("id"), "links", shapes.LinkAnswer, asked
            )

    @extend_schema(request=shapes.LinkQuery, responses={201: shapes.LinkAnswer, 200: shapes.LinkAnswer})
    def post(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Links it to another of the same person; answers 200 when the link is there."""
        asked = parsed(shapes.LinkQuery, request.data).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            link = _link(user, entity_id, asked["to"], asked["relation"])
            created = insert_unless_there(link)
        code = status.HTTP_201_CREATED if created else status.HTTP_200_OK
        return Response(shapes.LinkAnswer(link).data, status=code)

    @extend_schema(parameters=[shapes.LinkQuery], responses={204: OpenApiResponse(description="Deleted.")})
    def delete(self, request: Request, entity_id: uuid.UUID) -> Response:
        """Takes a link away."""
        asked = query(shapes.LinkQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            link = _link(user, entity_id, asked["to"], asked["relation"])
            same = {"from_entity": link.from_entity, "to_entity": link.to_entity, "relation": link.relation}
            if not EntityLink.objects.filter(user=user, **same).delete()[0]:
                raise NotFound
        return Response(status=status.HTTP_204_NO_CONTENT)


def _link(user: UserProfile | None, from_id: uuid.UUID, to_id: uuid.UUID, relation: str) -> EntityLink:
    if from_id == to_id:
        raise ValidationError({"to": "An entity can't be linked to itself."})
    return EntityLink(
        user=user,
        from_entity=entity_or_404(user, from_id),
        to_entity=entity_or_404(user, to_id),
        relation=relation,
    )
