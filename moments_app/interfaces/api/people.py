"""The known people in a user's memory over REST, each with a profile that is derived from the facts about them."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.models import KnownPerson, MemoryAtom
from moments_app.models.known_person import KnownPersonQuerySet
from moments_app.streams.profile import profile_of
from sessions_app.api.fields import PublicIdField, TextField
from sessions_app.api.pagination import PageQuery
from sessions_app.api.viewsets import PersonViewSet


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
