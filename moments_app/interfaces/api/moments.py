"""Moments over REST."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers, status
from rest_framework.response import Response

from moments_app.interfaces.api.jobs import Accepted, accepted
from moments_app.models import Job, Moment
from moments_app.moments.build import BuildMoments
from moments_app.moments.delete import delete_moment
from sessions_app.api.fields import (
    CONTRADICTORY,
    AwareDateTimeField,
    BooleanField,
    IntegerField,
    PublicIdField,
    TextField,
)
from sessions_app.api.pages import PAGE_MAX, PageAnswer, PageQuery
from sessions_app.api.person import PersonQuery
from sessions_app.api.person_view import PersonView, one_or_404, operation, update
from sessions_app.api.sessions import session_or_404
from sessions_app.models import Event, UserProfile


class TagList(serializers.ListField):
    """Short strings."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=TextField(max_length=255), max_length=50, **kwargs)


class BuildInput(PersonQuery):
    """Asks for moments of a session."""

    rules = {"dependentSchemas": {"lag": {"required": ["force"], "properties": {"force": {"const": True}}}}}

    session_id = PublicIdField()
    force = BooleanField(default=False, help_text="Build whatever the thresholds say.")
    lag = IntegerField(min_value=0, max_value=1_000_000, required=False, help_text="Turns to keep live.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "lag" in attrs and not attrs["force"]:
            raise serializers.ValidationError({"lag": "A lag can be given for a forced build only."}, CONTRADICTORY)
        return attrs


class MomentsQuery(PageQuery):
    """Filters of a list of moments."""

    category = TextField(max_length=64, required=False)
    session_id = PublicIdField(required=False)
    topic = TextField(max_length=255, required=False)
    since = AwareDateTimeField(required=False, help_text="Moments that end at this time or later.")
    until = AwareDateTimeField(required=False, help_text="Moments that start at this time or earlier.")
    text = TextField(max_length=1000, required=False, help_text="Words of name, summary or detail.")


class ChainQuery(PersonQuery):
    """The length of a chain."""

    depth = IntegerField(min_value=1, max_value=PAGE_MAX, default=10)


class MomentPatch(PersonQuery):
    """What can be corrected in a moment."""

    name = TextField(max_length=255, required=False)
    category = TextField(max_length=64, required=False)
    summary = TextField(max_length=10_000, required=False)
    detail = TextField(max_length=50_000, allow_blank=True, required=False)
    topic_tags = TagList(required=False)
    emotion_tags = TagList(required=False)
    present_persons = TagList(required=False)


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
            "detail",
            "emotion_tags",
            "present_persons",
            "source_session_id",
            "first_sequence",
            "last_sequence",
            "previous_moment_keys",
            "engine",
            "created_at",
        )


class MomentList(PageAnswer):
    moments = MomentRow(many=True)


class MomentChain(serializers.Serializer[Any]):
    moments = MomentRow(many=True)
    has_more = serializers.BooleanField()


def moment_or_404(person: UserProfile | None, key: str) -> Moment:
    """Return this person's moment; one that isn't there and somebody else's are answered alike."""
    return one_or_404(Moment.objects.for_user(person).select_related("source_session"), key=key)


class BuildView(PersonView):
    """A build of moments on demand."""

    @operation({202: Accepted}, body=BuildInput, operation_id="moments_build")
    def post(self) -> Response:
        """Asks for a build; while one is open for the session, that one is answered."""
        session = session_or_404(self.person, self.body["session_id"])
        params = {"lag": self.body["lag"]} if "lag" in self.body else {}
        force = self.body["force"]
        return accepted(
            Job.objects.request(BuildMoments.name, session, requested_by=self.actor, force=force, params=params)
        )


class MomentsView(PersonView):
    """A person's moments."""

    @operation(MomentList, query=MomentsQuery)
    def get(self) -> Response:
        """Moments of a person, newest first."""
        moments = self.filtered(
            Moment.objects.for_user(self.person),
            category="category",
            session_id="source_session__session_id",
            since="ends_at__gte",
            until="starts_at__lte",
        )
        if "topic" in self.query:
            moments = moments.with_topic(self.query["topic"])
        if "text" in self.query:
            moments = moments.matching(self.query["text"])
        return self.page(MomentList, moments.newest_first())


class MomentView(PersonView):
    """One moment."""

    @operation(MomentAnswer, query=PersonQuery)
    def get(self, key: str) -> Response:
        """The whole moment."""
        return Response(MomentAnswer(moment_or_404(self.person, key)).data)

    @operation(MomentAnswer, body=MomentPatch)
    def patch(self, key: str) -> Response:
        """Corrects the moment; its key and its turns stay."""
        moment = moment_or_404(self.person, key)
        update(moment, self.body)
        Event.objects.create(
            type="moment_edited",
            actor=self.actor,
            user_pk=moment.user_id,
            session_pk=moment.source_session_id,
            payload={"key": moment.key, "fields": sorted(self.body)},
        )
        return Response(MomentAnswer(moment).data)

    @operation({204: OpenApiResponse(description="Deleted.")}, query=PersonQuery)
    def delete(self, key: str) -> Response:
        """Deletes the moment; the turns stay, and the chain closes over the gap."""
        delete_moment(moment_or_404(self.person, key), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ChainView(PersonView):
    """The chain of moments."""

    @operation(MomentChain, query=ChainQuery, operation_id="moments_chain")
    def get(self, key: str) -> Response:
        """The moments before this one, nearest first."""
        depth = self.query["depth"]
        found = Moment.objects.chain_from(moment_or_404(self.person, key), depth + 1)
        return Response(MomentChain({"moments": found[:depth], "has_more": len(found) > depth}).data)
