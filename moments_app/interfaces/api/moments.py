"""Moments, and the summaries of sessions, over REST."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.interfaces.api.jobs import Accepted
from moments_app.models import Job, Moment, Summary
from moments_app.models.moment import EPISODE_FIELDS, MomentQuerySet
from moments_app.models.summary import SummaryQuerySet
from moments_app.moments.build import BuildMoments
from moments_app.moments.partition import delete_moment
from moments_app.sessions.digest import DigestSession
from sessions_app.api.fields import (
    CONTRADICTORY,
    AwareDateTimeField,
    BooleanField,
    IntegerField,
    PersonQuery,
    PublicIdField,
    TextField,
)
from sessions_app.api.pagination import PAGE_MAX, PageQuery
from sessions_app.api.viewsets import PersonViewSet, session_or_404, update
from sessions_app.models import Event, Session


class TagsField(serializers.ListField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=TextField(max_length=255), max_length=50, **kwargs)


class BuildInput(PersonQuery):
    """A request to build the moments of a session."""

    rules = {"dependentSchemas": {"lag": {"required": ["force"], "properties": {"force": {"const": True}}}}}

    session_id = PublicIdField()
    force = BooleanField(default=False, help_text="Build moments even if the thresholds are not reached.")
    lag = IntegerField(
        min_value=0,
        max_value=1_000_000,
        required=False,
        help_text="How many of the newest turns to leave out of the build. Send this field only together with `force`.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "lag" in attrs and not attrs["force"]:
            raise serializers.ValidationError({"lag": "lag needs force=true."}, CONTRADICTORY)
        return attrs


class MomentsQuery(PageQuery):
    category = TextField(max_length=64, required=False)
    session_id = PublicIdField(required=False)
    topic = TextField(max_length=255, required=False)
    since = AwareDateTimeField(required=False, help_text="Return moments that end at this time or later.")
    until = AwareDateTimeField(required=False, help_text="Return moments that start at this time or earlier.")
    text = TextField(max_length=1000, required=False, help_text="Words to search for in the name, summary and detail.")
    after = PublicIdField(
        required=False, help_text="Key of the last moment on the previous page. `after` is an alternative to `offset`."
    )


class ChainQuery(PersonQuery):
    depth = IntegerField(min_value=1, max_value=PAGE_MAX, default=10)


class MomentPatch(PersonQuery):
    """The fields of a moment that can be corrected."""

    name = TextField(max_length=255, required=False)
    category = TextField(max_length=64, required=False)
    summary = TextField(max_length=10_000, required=False)
    detail = TextField(max_length=50_000, allow_blank=True, required=False)
    topic_tags = TagsField(required=False)
    emotion_tags = TagsField(required=False)
    present_persons = TagsField(required=False)


class MomentRow(serializers.ModelSerializer[Moment]):
    """A moment in a list."""

    starts_timestamp = serializers.DateTimeField(source="starts_at")
    ends_timestamp = serializers.DateTimeField(source="ends_at")

    class Meta:
        model = Moment
        fields: tuple[str, ...] = (
            "key",
            "name",
            "category",
            "summary",
            "topic_tags",
            "starts_timestamp",
            "ends_timestamp",
        )


class MomentAnswer(MomentRow):
    """A moment in full."""

    source_session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)

    class Meta(MomentRow.Meta):
        fields = (
            *MomentRow.Meta.fields,
            *(name for name in EPISODE_FIELDS if name not in MomentRow.Meta.fields),
            "source_session_id",
            "first_sequence",
            "last_sequence",
            "previous_moment_keys",
            "engine",
            "created_at",
        )


class MomentChain(serializers.Serializer[Any]):
    moments = MomentRow(many=True)
    has_more = serializers.BooleanField()


@extend_schema_view(
    list=extend_schema(description="Return the moments of a person, newest first."),
    retrieve=extend_schema(description="Return a moment."),
    destroy=extend_schema(
        description="Delete a moment. Its turns stay, and the moments before and after it are linked to each other."
    ),
)
class MomentViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, PersonViewSet[Moment]):
    queryset = Moment.objects.newest_first()
    serializer_class = MomentAnswer
    lookup_field = "key"
    lookup_value_converter = "public_id"
    inputs = {"list": MomentsQuery, "partial_update": MomentPatch, "chain": ChainQuery, "build": BuildInput}
    answers = {"list": MomentRow, "chain": MomentChain, "build": {202: Accepted}}
    filters = {
        "category": "category",
        "session_id": "source_session__session_id",
        "since": "ends_at__gte",
        "until": "starts_at__lte",
        "topic": MomentQuerySet.with_topic,
        "text": MomentQuerySet.matching,
    }

    def get_queryset(self) -> MomentQuerySet:
        """Return the person's moments. Join their sessions, unless the request lists moments."""
        rows: MomentQuerySet = super().get_queryset()
        return rows if self.action == "list" else rows.select_related("source_session")

    def partial_update(self, request: Request, key: str) -> Response:
        """Correct a moment. Its key and its turns don't change."""
        moment = self.get_object()
        update(moment, self.validated_data)
        Event.objects.create(
            type="moment_edited",
            actor=self.actor,
            user_pk=moment.user_id,
            session_pk=moment.source_session_id,
            payload={"key": moment.key, "fields": sorted(self.validated_data)},
        )
        return self.answer(moment)

    def perform_destroy(self, instance: Moment) -> None:
        delete_moment(instance, actor=self.actor)

    @action(detail=True)
    def chain(self, request: Request, key: str) -> Response:
        """Return the moments before this one, nearest first."""
        depth = self.validated_data["depth"]
        found = Moment.objects.chain_from(self.get_object(), depth + 1)
        return self.answer({"moments": found[:depth], "has_more": len(found) > depth})

    @action(detail=False, methods=["post"])
    def build(self, request: Request) -> Response:
        """Queue a build of moments. If the session already has an open job for this, return it."""
        session = session_or_404(self.person, self.validated_data["session_id"])
        params = {"lag": self.validated_data["lag"]} if "lag" in self.validated_data else {}
        force = self.validated_data["force"]
        job = Job.objects.request(BuildMoments.name, session, requested_by=self.actor, force=force, params=params)
        return self.answer({"job_id": job.job_id}, status.HTTP_202_ACCEPTED)


# --- summaries ---


class SummaryFact(serializers.Serializer[Any]):
    """A fact of a summary and its source turns."""

    fact = serializers.CharField()
    message_indexes = serializers.ListField(
        child=serializers.IntegerField(), help_text="Sequence numbers of the source turns."
    )


class SummaryRow(serializers.ModelSerializer[Summary]):
    """A version of a session's rolling summary."""

    facts = SummaryFact(many=True)
    source_sequences = serializers.ListField(
        child=serializers.IntegerField(), help_text="Sequence numbers of the source turns, except deleted turns."
    )
    base_end_sequence = serializers.IntegerField(
        source="base.end_sequence",
        default=None,
        allow_null=True,
        help_text="The `end_sequence` of the previous completed version. Null for the first version.",
    )

    class Meta:
        model = Summary
        fields = (
            "status",
            "start_sequence",
            "end_sequence",
            "base_end_sequence",
            "text",
            "facts",
            "source_sequences",
            "engine",
            "generation_time_ms",
            "error",
            "created_at",
            "completed_at",
        )


@extend_schema_view(
    list=extend_schema(
        description="Return the versions of a session's rolling summary, newest first. Each completed version "
        "continues the previous completed version."
    )
)
class SummaryViewSet(ListModelMixin, PersonViewSet[Summary]):
    serializer_class = SummaryRow

    def get_queryset(self) -> SummaryQuerySet:
        session = session_or_404(self.person, self.kwargs["session_id"])
        return Summary.objects.for_session(session).newest_first().select_related("base").with_source_sequences()


class CompactViewSet(PersonViewSet[Session]):
    lookup_field = "session_id"
    lookup_value_converter = "public_id"
    answers = {"compact": {202: Accepted}}

    @action(detail=True, methods=["post"])
    def compact(self, request: Request, session_id: str) -> Response:
        """Queue a compaction of the session. Then `view=live` starts with a summary instead of the live turns."""
        session = session_or_404(self.person, session_id)
        job = Job.objects.request(DigestSession.name, session, requested_by=self.actor, force=True)
        return self.answer({"job_id": job.job_id}, status.HTTP_202_ACCEPTED)
