"""Messages of a session over REST: append messages, and read the transcript."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.conf import settings
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.fields import (
    CONTRADICTORY,
    SEQUENCE_MAX,
    TEXT,
    AwareDateTimeField,
    BooleanField,
    ExternalIdField,
    IntegerField,
    JsonField,
    JsonObjectField,
    PersonQuery,
    PublicIdField,
    StrictSerializer,
    TextField,
    UUIDField,
)
from sessions_app.api.pagination import PAGE_MAX
from sessions_app.api.viewsets import PersonViewSet, session_or_404
from sessions_app.models import Message, Session
from sessions_app.models.session import UnknownContext
from sessions_app.retention.read_archived import with_text
from sessions_app.signals import digest_wanted
from sessions_app.text.chat_messages import text_and_parts
from sessions_app.text.length import shorten_middle
from sessions_app.transcript.append import BATCH_MAX, Appended, IdTaken, NewMessage, append, process_texts
from sessions_app.transcript.load import LoadedMessage, load_session_messages, page_of_messages, turn_kinds

_PART = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string", "pattern": TEXT}, "text": {"type": ["string", "null"], "pattern": TEXT}},
    "propertyNames": {"pattern": TEXT},
    "additionalProperties": {},
}
_PARTS = {"type": "array", "items": {"anyOf": [{"type": "string", "pattern": TEXT}, _PART]}}


@extend_schema_field({"anyOf": [{"type": "string"}, _PARTS]})
class ContentField(TextField):
    """A text. A list of parts is converted to a text beforehand."""

    default_error_messages = {"invalid": "Send a text or a list of parts."}


class PartsField(JsonField):
    """A list of parts. Each is a text, or an object with a type, as in chat model APIs."""

    default_error_messages = {
        "part": "Part {number} must be a text, or an object with a `type` and an optional `text`."
    }

    def to_internal_value(self, data: Any) -> Any:
        """Return the joined text, and the other parts. The data of pictures and files are removed."""
        for number, part in enumerate(data):
            if not (isinstance(part, str) or _is_part(part)):
                self.fail("part", number=number)
        text, others = text_and_parts(data)
        return text, super().to_internal_value(others)


def _is_part(value: Any) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("type"), str) and isinstance(value.get("text", ""), str | None)
    )


class MessageInput(StrictSerializer):
    """One message to append."""

    role = serializers.ChoiceField(choices=Message.Role.choices)
    content = ContentField(
        allow_blank=True,
        default="",
        help_text="A text of at most `MESSAGE_MAX_CHARS` characters, or a list of parts in the format that "
        "chat models use. The text parts become the content, one per line. All other parts are stored in the payload "
        "as `parts`, without image or file data.",
    )
    tool_name = TextField(allow_blank=True, max_length=255, default="")
    name = TextField(
        allow_blank=True,
        max_length=255,
        default="",
        help_text="Name of the speaker in a session with several people or agents.",
    )
    payload = JsonField(required=False, allow_null=True, default=None)
    created_at = AwareDateTimeField(required=False, allow_null=True, default=None)
    external_id = ExternalIdField(default=None)
    metadata = JsonObjectField(required=False, default=dict)

    def to_internal_value(self, data: Any) -> Any:
        has_parts = isinstance(data, dict) and isinstance(data.get("content"), list)
        return super().to_internal_value(_with_text(data) if has_parts else data)

    def validate_content(self, content: str) -> str:
        if len(content) > settings.MESSAGE_MAX_CHARS:
            raise serializers.ValidationError(
                f"A message can have at most {settings.MESSAGE_MAX_CHARS} characters; this one has {len(content)}.",
                "max_length",
            )
        return content


_parts = PartsField()


def _with_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the text of its parts as content, and the other parts in its payload."""
    try:
        text, others = _parts.run_validation(message["content"])
    except serializers.ValidationError as error:
        raise serializers.ValidationError({"content": error.detail}) from None
    if not others:
        return message | {"content": text}
    payload = message.get("payload")
    payload = {} if payload is None else payload
    if not isinstance(payload, dict) or "parts" in payload:
        reason = (
            "The payload must be an object without `parts`, because the non-text parts of the content are stored there."
        )
        raise serializers.ValidationError({"payload": reason}, CONTRADICTORY)
    return message | {"content": text, "payload": payload | {"parts": others}}


class AppendInput(PersonQuery):
    """A batch of messages, in conversation order."""

    agent_id = PublicIdField(required=False)
    source = TextField(required=False, max_length=64)  # type: ignore[assignment]  # not the attribute of a field
    context_id = UUIDField(
        required=False,
        allow_null=True,
        default=None,
        help_text="The `context_id` of the context that the model received. The id is stored with the "
        "assistant's message, so operators can see what the model received.",
    )
    messages: serializers.ListSerializer[Any] = serializers.ListSerializer(
        child=MessageInput(), min_length=1, max_length=BATCH_MAX
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        is_answered = any(message["role"] == Message.Role.ASSISTANT for message in attrs["messages"])
        if attrs.get("context_id") and not is_answered:
            raise serializers.ValidationError(
                {"context_id": "context_id needs a message with the role assistant."}, CONTRADICTORY
            )
        return attrs


class MessagesQuery(PersonQuery):
    """Filters of messages: `view=live` for those to replay to a model, `view=all` for a page of the transcript."""

    view = serializers.ChoiceField(
        choices=["live", "all"],
        required=False,
        help_text="`live`: messages to send to a model. `all`: a page of the whole transcript. Default: `all` if "
        "`after` or `before` is set, otherwise `live`.",
    )
    limit = IntegerField(
        min_value=1,
        max_value=1000,
        required=False,
        help_text=f"Maximum number of turns. With `view=all`, the limit can be at most {PAGE_MAX}.",
    )
    after = IntegerField(min_value=-1, max_value=SEQUENCE_MAX, required=False)
    before = IntegerField(min_value=0, max_value=SEQUENCE_MAX, required=False)
    compress = BooleanField(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        paged = [name for name in ("after", "before") if name in attrs]
        view = attrs.setdefault("view", "all" if paged else "live")
        if view == "live" and paged:
            raise serializers.ValidationError({paged[0]: "Send after and before only with view=all."}, CONTRADICTORY)
        if len(paged) == 2:
            raise serializers.ValidationError({"before": "Use after or before, not both."}, CONTRADICTORY)
        if view == "all" and attrs.setdefault("limit", 50) > PAGE_MAX:
            raise serializers.ValidationError({"limit": f"A page can have at most {PAGE_MAX} turns."}, CONTRADICTORY)
        attrs.setdefault("limit", settings.MOMENT_BUILDER.reload_limit)
        return attrs


MAX_TURN_TOKENS = 1_000  # with `compress=true`, longer turns are shortened
SHOWN_KINDS = [Message.Kind.TURN, Message.Kind.PARTITION]


class MessageAnswer(serializers.Serializer[Any]):
    """A turn or a boundary."""

    sequence = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=SHOWN_KINDS)
    role = serializers.ChoiceField(choices=Message.Role.choices)
    content = serializers.CharField()
    tool_name = serializers.CharField()
    name = serializers.CharField()
    payload = serializers.JSONField(allow_null=True)
    tokens = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    external_id = serializers.CharField(allow_null=True)
    moment_key = serializers.CharField(allow_null=True)
    retracted_at = serializers.DateTimeField(
        allow_null=True, help_text="When the turn was retracted. Null if the turn was not retracted."
    )
    metadata = serializers.JSONField()


class OmittedAnswer(serializers.Serializer[Any]):
    """Live turns before the returned ones. Use `view=all` to get them."""

    count = serializers.IntegerField()
    from_sequence = serializers.IntegerField()
    to_sequence = serializers.IntegerField()


class LiveMessages(serializers.Serializer[Any]):
    messages = MessageAnswer(many=True)
    has_partition_event = serializers.BooleanField()
    omitted = OmittedAnswer(
        allow_null=True,
        help_text="Range of live turns that were left out because of the limit. Null if all live turns were returned.",
    )
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
    created = serializers.BooleanField(
        help_text="Whether the message was added. False if the message was already stored."
    )


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


class MessageViewSet(PersonViewSet[Message]):
    """The transcript of one session."""

    inputs = {"create": AppendInput, "list": MessagesQuery}
    answers = {
        "create": {201: AppendAnswer, 200: AppendAnswer},
        "list": PolymorphicProxySerializer("Messages", [LiveMessages, MessagePage], resource_type_field_name=None),
    }
    refuses = {"create": [IdTaken, UnknownContext]}
    creates_person = ("create",)
    own_transaction = ("create", "list")

    @extend_schema(operation_id="messages_append")
    def create(self, request: Request, session_id: str) -> Response:
        """Append up to 500 messages, all or none. Creates the session if it doesn't exist.

        A message whose `external_id` is already in the session is not added again; it is returned with
        `created: false`. If its content differs from the stored message, nothing is added and the request fails
        with 409.
        """
        messages = [NewMessage(**message) for message in self.validated_data.pop("messages")]
        self.user_id()  # fail before processing the texts if the user_id is wrong
        process_texts(messages)
        with self.transaction():
            appended = append(self.found_person, session_id, messages, **self.validated_data)
        is_new = any(is_new for _, is_new in appended.messages)
        code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
        return Response(append_data(appended, self.found_person.user_id), status=code)

    def list(self, request: Request, session_id: str) -> Response:
        """Return messages.

        `view=live`: the latest boundary and the newest turns after it. `view=all`: pages of the whole transcript.
        """
        with self.transaction():
            session = session_or_404(self.person, session_id)
            if self.validated_data["view"] == "all":
                return Response(self._page(session))
            if not session.wants_digest:
                return Response(self._live(session))
        digest_wanted.send(sender=Session, session=session)
        with self.transaction():
            return Response(self._live(session_or_404(self.person, session_id)))

    def _live(self, session: Session) -> dict[str, Any]:
        loaded = load_session_messages(session, self.validated_data["limit"])
        return {
            "messages": self._presented(session, loaded.messages),
            "has_partition_event": loaded.has_partition_event,
            "omitted": asdict(loaded.omitted) if loaded.omitted else None,
            "live_from_sequence": session.live_from_sequence,
            "message_count": session.message_count,
        }

    def _page(self, session: Session) -> dict[str, Any]:
        after, before = self.validated_data.get("after"), self.validated_data.get("before")
        kinds = turn_kinds(session)
        page = page_of_messages(session, self.validated_data["limit"], after=after, before=before, kinds=kinds)
        messages = [LoadedMessage.from_message(message) for message in with_text(session.user, page.messages)]
        return {"messages": self._presented(session, messages), "has_more": page.has_more}

    def _presented(self, session: Session, messages: Sequence[LoadedMessage]) -> Sequence[dict[str, Any]]:
        """Return messages with the fields of `MessageAnswer`. Faster than the serializer for hundreds of messages."""
        if self.validated_data["compress"]:
            messages = [_compressed(message, session) for message in messages]
        return [message._asdict() for message in messages]


def _compressed(message: LoadedMessage, session: Session) -> LoadedMessage:
    """Shorten a message over `MAX_TURN_TOKENS`, and add the URL of the full message."""
    if message.tokens <= MAX_TURN_TOKENS:
        return message
    hint = f"rem://sessions/{session.session_id}/messages/{message.sequence}"
    content = shorten_middle(message.content, len(message.content) * MAX_TURN_TOKENS // message.tokens, hint)
    return message._replace(content=content)


def append_data(appended: Appended, user_id: str) -> dict[str, Any]:
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
