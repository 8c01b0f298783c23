"""The shapes of the transcript's requests and answers."""

from typing import Any

from django.conf import settings
from rest_framework import serializers

from sessions_app.api.fields import (
    AwareDateTimeField,
    JsonField,
    JsonObjectField,
    PublicIdField,
    StrictSerializer,
    TextField,
)
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.user_profile import validate_timezone
from sessions_app.shorten import shorten_middle
from sessions_app.transcript.append import BATCH_MAX, Appended, NewMessage

PAGE_MAX = 200
SEQUENCE_MAX = 2**62


class PersonQuery(StrictSerializer):
    """Names the person; a user's key need not."""

    user_id = PublicIdField(required=False)


class PageQuery(PersonQuery):
    """A page of a list."""

    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, default=0)


class MessageInput(StrictSerializer):
    """One message to append."""

    role = serializers.ChoiceField(choices=Message.Role.choices)
    content = TextField(allow_blank=True, default="")
    tool_name = TextField(allow_blank=True, max_length=255, default="")
    payload = JsonField(required=False, allow_null=True, default=None)
    created_at = AwareDateTimeField(required=False, allow_null=True, default=None)
    external_id = TextField(required=False, allow_null=True, max_length=255, default=None)
    metadata = JsonObjectField(required=False, default=dict)

    def validate_content(self, content: str) -> str:
        if len(content) > settings.MESSAGE_MAX_CHARS:
            raise serializers.ValidationError(
                f"A message has at most {settings.MESSAGE_MAX_CHARS} characters; this one has {len(content)}.",
                "max_length",
            )
        return content


class AppendInput(PersonQuery):
    """A batch of messages, in conversation order."""

    agent_id = PublicIdField(required=False)
    source = TextField(required=False, max_length=64)  # type: ignore[assignment]  # not the attribute of a field
    messages: serializers.ListSerializer[Any] = serializers.ListSerializer(
        child=MessageInput(), min_length=1, max_length=BATCH_MAX
    )

    def batch(self) -> list[NewMessage]:
        """What was validated, as `append` takes it."""
        return [NewMessage(**message) for message in self.validated_data["messages"]]


class SessionInput(PersonQuery):
    """A new session."""

    session_id = PublicIdField()
    agent_id = PublicIdField(default="default")
    source = TextField(max_length=64, default="api")  # type: ignore[assignment]
    title = TextField(allow_blank=True, max_length=255, default="")
    metadata = JsonObjectField(default=dict)
    compact_on_request = serializers.BooleanField(
        default=None, allow_null=True, help_text="Digest before a load or context. Null: as set for all sessions."
    )


class SessionPatch(PersonQuery):
    """What can be changed of a session."""

    title = TextField(allow_blank=True, max_length=255, required=False)
    legal_hold = serializers.BooleanField(
        required=False, help_text="Nothing of it is archived or deleted. Needs scope admin."
    )
    metadata = JsonObjectField(required=False)
    compact_on_request = serializers.BooleanField(
        required=False, allow_null=True, help_text="Digest before a load or context. Null: as set for all sessions."
    )


class MessagesQuery(PersonQuery):
    """Which messages: `view=live` what is to be replayed, `view=all` a page of the whole transcript."""

    view = serializers.ChoiceField(choices=["live", "all"], default="live")
    limit = serializers.IntegerField(min_value=1, max_value=1000, required=False)
    after = serializers.IntegerField(min_value=-1, max_value=SEQUENCE_MAX, required=False)
    before = serializers.IntegerField(min_value=0, max_value=SEQUENCE_MAX, required=False)
    compress = serializers.BooleanField(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        paged = [name for name in ("after", "before") if name in attrs]
        if attrs["view"] == "live" and paged:
            raise serializers.ValidationError({paged[0]: "Only view=all has pages."})
        if len(paged) == 2:
            raise serializers.ValidationError({"before": "Give after or before, not both."})
        if attrs["view"] == "all" and attrs.setdefault("limit", 50) > PAGE_MAX:
            raise serializers.ValidationError({"limit": f"A page has at most {PAGE_MAX} turns."})
        attrs.setdefault("limit", settings.MOMENT_BUILDER.reload_limit)
        return attrs


class ProfilePatch(StrictSerializer):
    """What can be changed of a profile."""

    summary = TextField(allow_blank=True, max_length=20_000, required=False)
    interests = serializers.ListField(child=TextField(max_length=255), max_length=50, required=False)
    preferred_topics = serializers.ListField(child=TextField(max_length=255), max_length=50, required=False)
    timezone = TextField(max_length=64, required=False, validators=[validate_timezone])
    metadata = JsonObjectField(required=False)


# --- answers ---


class SessionAnswer(serializers.ModelSerializer[Session]):
    """A session with its counters."""

    user_id = serializers.CharField(source="user.user_id")
    last_activity = serializers.DateTimeField(source="last_activity_at")

    class Meta:
        model = Session
        fields = (
            "session_id",
            "user_id",
            "agent_id",
            "source",
            "title",
            "status",
            "message_count",
            "total_tokens",
            "last_activity",
            "last_moment_message_idx",
            "live_from_sequence",
            "live_tokens",
            "compact_on_request",
            "kept_from_sequence",
            "legal_hold",
            "metadata",
            "created_at",
        )


class SessionList(serializers.Serializer[Any]):
    sessions = SessionAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


class MessageAnswer(serializers.Serializer[Any]):
    """A turn or a partition event."""

    sequence = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=[Message.Kind.TURN, Message.Kind.PARTITION])
    role = serializers.ChoiceField(choices=Message.Role.choices)
    content = serializers.CharField()
    tool_name = serializers.CharField()
    payload = serializers.JSONField(allow_null=True)
    tokens = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    external_id = serializers.CharField(allow_null=True)
    moment_key = serializers.CharField(allow_null=True)
    retracted_at = serializers.DateTimeField(allow_null=True, help_text="Since when it is no longer believed.")
    metadata = serializers.JSONField()


class OmittedAnswer(serializers.Serializer[Any]):
    """Live turns that came before those returned; a page of `view=all` has them."""

    count = serializers.IntegerField()
    from_sequence = serializers.IntegerField()
    to_sequence = serializers.IntegerField()


class LiveMessages(serializers.Serializer[Any]):
    messages = MessageAnswer(many=True)
    has_partition_event = serializers.BooleanField()
    omitted = OmittedAnswer(allow_null=True, help_text="Null: every turn after the boundary is there.")
    live_from_sequence = serializers.IntegerField()
    message_count = serializers.IntegerField()


class MessagePage(serializers.Serializer[Any]):
    messages = MessageAnswer(many=True)
    has_more = serializers.BooleanField()


class PlacedMessage(serializers.Serializer[Any]):
    sequence = serializers.IntegerField()
    external_id = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    tokens = serializers.IntegerField()
    created = serializers.BooleanField(help_text="False: it was there already.")


class DueJobAnswer(serializers.Serializer[Any]):
    job_id = serializers.UUIDField()
    process = serializers.CharField()
    status = serializers.CharField()


class AppendAnswer(serializers.Serializer[Any]):
    session_id = serializers.CharField()
    user_id = serializers.CharField()
    message_count = serializers.IntegerField()
    total_tokens = serializers.IntegerField()
    messages = PlacedMessage(many=True)
    jobs = DueJobAnswer(many=True)


class ProfileAnswer(serializers.ModelSerializer[UserProfile]):
    """What is known of a person."""

    class Meta:
        model = UserProfile
        fields = (
            "user_id",
            "uri",
            "summary",
            "interests",
            "preferred_topics",
            "timezone",
            "metadata",
            "created_at",
            "updated_at",
        )

    uri = serializers.CharField()


class ErasedAnswer(serializers.Serializer[Any]):
    """What an erasure removed."""

    erasure_id = serializers.UUIDField(help_text="Of the entry in the event log.")
    rows = serializers.DictField(child=serializers.IntegerField(), help_text="How many, by what they were.")
    has_files_left = serializers.BooleanField(
        help_text="The storage of archives failed just now; files are removed when it is back."
    )


def message_data(message: Message, *, compress: bool = False) -> dict[str, Any]:
    """A message as `MessageAnswer` describes it; built by hand, for a page has hundreds.

    Args:
        message: the row, as the loader gives it, with the key of its moment.
        compress: shorten what is over `LOAD_MAX_TURN_TOKENS`, naming where the whole can be read.
    """
    content = message.content
    limit = settings.MOMENT_BUILDER.load_max_turn_tokens
    if compress and message.tokens > limit:
        hint = f"rem://sessions/{message.session.session_id}/messages/{message.sequence}"
        content = shorten_middle(content, len(content) * limit // message.tokens, hint)
    return {
        "sequence": message.sequence,
        "kind": message.kind,
        "role": message.role,
        "content": content,
        "tool_name": message.tool_name,
        "payload": message.payload,
        "tokens": message.tokens,
        "created_at": message.created_at,
        "external_id": message.external_id,
        "moment_key": getattr(message, "moment_key", None),
        "retracted_at": message.retracted_at,
        "metadata": message.metadata,
    }


def append_data(appended: Appended, user_id: str) -> dict[str, Any]:
    """What `append` did, as `AppendAnswer` describes it."""
    return {
        "session_id": appended.session.session_id,
        "user_id": user_id,
        "message_count": appended.session.message_count,
        "total_tokens": appended.session.total_tokens,
        "messages": [
            {
                "sequence": message.sequence,
                "external_id": message.external_id,
                "created_at": message.created_at,
                "tokens": message.tokens,
                "created": created,
            }
            for message, created in appended.messages
        ],
        "jobs": [{"job_id": job.job_id, "process": job.process, "status": job.status} for job in appended.jobs],
    }
