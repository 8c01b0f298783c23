"""The shapes of the memory's requests and answers."""

from typing import Any

from rest_framework import serializers

from moments_app.models import Job, Moment
from sessions_app.api.fields import AwareDateTimeField, PublicIdField, TextField
from sessions_app.api.serializers import PAGE_MAX, PageQuery, PersonQuery


class TagList(serializers.ListField):
    """Short strings."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=TextField(max_length=255), max_length=50, **kwargs)


class BuildInput(PersonQuery):
    """Asks for moments of a session."""

    session_id = PublicIdField()
    force = serializers.BooleanField(default=False, help_text="Build whatever the thresholds say.")
    lag = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, help_text="Turns to keep live.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "lag" in attrs and not attrs["force"]:
            raise serializers.ValidationError({"lag": "A lag can be given for a forced build only."})
        return attrs


class MomentsQuery(PageQuery):
    """Which moments."""

    category = TextField(max_length=64, required=False)
    session_id = PublicIdField(required=False)
    topic = TextField(max_length=255, required=False)
    since = AwareDateTimeField(required=False, help_text="Moments that end at this time or later.")
    until = AwareDateTimeField(required=False, help_text="Moments that start at this time or earlier.")
    text = TextField(max_length=1000, required=False, help_text="Words of name, summary or detail.")


class ChainQuery(PersonQuery):
    """How far back."""

    depth = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=10)


class MomentPatch(PersonQuery):
    """What can be corrected in a moment."""

    name = TextField(max_length=255, required=False)
    category = TextField(max_length=64, required=False)
    summary = TextField(max_length=10_000, required=False)
    detail = TextField(max_length=50_000, allow_blank=True, required=False)
    topic_tags = TagList(required=False)
    emotion_tags = TagList(required=False)
    present_persons = TagList(required=False)


class JobsQuery(PageQuery):
    """Which jobs."""

    session_id = PublicIdField(required=False)
    process = TextField(max_length=32, required=False)
    status = serializers.ChoiceField(choices=Job.Status.choices, required=False)


# --- answers ---


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


class MomentList(serializers.Serializer[Any]):
    moments = MomentRow(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


class MomentChain(serializers.Serializer[Any]):
    moments = MomentRow(many=True)
    has_more = serializers.BooleanField()


class Accepted(serializers.Serializer[Any]):
    status = serializers.CharField(default="accepted")
    job_id = serializers.UUIDField()


class ProgressAnswer(serializers.Serializer[Any]):
    done = serializers.IntegerField(source="progress_done")
    total = serializers.IntegerField(source="progress_total")


class JobAnswer(serializers.ModelSerializer[Job]):
    """A job with its outcome so far."""

    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    user_id = serializers.CharField(source="user.user_id", default=None, allow_null=True)
    progress = ProgressAnswer(source="*")

    class Meta:
        model = Job
        fields = (
            "job_id",
            "process",
            "status",
            "session_id",
            "user_id",
            "attempts",
            "progress",
            "result",
            "error",
            "queued_at",
            "started_at",
            "finished_at",
        )


class JobList(serializers.Serializer[Any]):
    jobs = JobAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()
