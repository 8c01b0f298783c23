"""Sessions over REST."""

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.fields import BooleanField, JsonObjectField, PersonQuery, PublicIdField, TextField
from sessions_app.api.pagination import PageQuery
from sessions_app.api.permissions import require_scope
from sessions_app.api.viewsets import PersonViewSet, session_or_404, update
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Session
from sessions_app.people.erase import CannotDelete, OnHold, delete_session

COMPACT_HELP = (
    "Whether to compact the session when a client loads its messages or requests a context. If null, the setting "
    "SESSION_COMPACTION__ON_REQUEST applies."
)


class SessionInput(PersonQuery):
    """A new session."""

    session_id = PublicIdField()
    agent_id = PublicIdField(default="default")
    source = TextField(max_length=64, default="api")  # type: ignore[assignment]
    title = TextField(allow_blank=True, max_length=255, default="")
    metadata = JsonObjectField(default=dict)
    compact_on_request = BooleanField(
        default=None,
        allow_null=True,
        help_text=COMPACT_HELP,
    )


class SessionsQuery(PageQuery):
    """A page of a list of sessions."""

    after = PublicIdField(
        required=False, help_text="Id of the last session on the previous page. `after` is an alternative to `offset`."
    )


class SessionPatch(PersonQuery):
    """The fields of a session that can be changed."""

    title = TextField(allow_blank=True, max_length=255, required=False)
    legal_hold = BooleanField(
        required=False,
        help_text="Whether the session is under legal hold, which prevents archiving and deletion. Only keys with the "
        "scope `admin` can change this field.",
    )
    metadata = JsonObjectField(required=False)
    compact_on_request = BooleanField(
        required=False,
        allow_null=True,
        help_text=COMPACT_HELP,
    )


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


@extend_schema_view(
    list=extend_schema(description="Return the sessions of a person, latest activity first."),
    retrieve=extend_schema(description="Return a session with its counters."),
    destroy=extend_schema(
        description="Delete a session with its transcript and archives. Moments built from the session stay. Returns "
        "409 if the session is under legal hold."
    ),
)
class SessionViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, PersonViewSet[Session]):
    """A person's sessions."""

    queryset = Session.objects.select_related("user").order_by("-last_activity_at", "-id")
    serializer_class = SessionAnswer
    lookup_field = "session_id"
    lookup_value_converter = "public_id"
    inputs = {"list": SessionsQuery, "create": SessionInput, "partial_update": SessionPatch}
    answers = {"create": {201: SessionAnswer, 200: SessionAnswer}}
    refuses = {"destroy": [CannotDelete, OnHold]}
    creates_person = ("create",)
    long_running = ("destroy",)

    def get_object(self) -> Session:
        return session_or_404(self.person, self.kwargs["session_id"])

    def create(self, request: Request) -> Response:
        """Create a session. If it exists, return it with 200."""
        is_new = insert_if_missing(Session(user=self.person, **self.validated_data))
        return self.created(session_or_404(self.person, self.validated_data["session_id"]), is_new=is_new)

    def partial_update(self, request: Request, session_id: str) -> Response:
        """Change the title, the metadata, `compact_on_request`, or, with the `admin` scope, the legal hold."""
        is_held = self.validated_data.pop("legal_hold", None)
        if is_held is not None:
            require_scope(request, "admin")
        session = self.get_object()
        update(session, self.validated_data)
        if is_held is not None:
            session.hold(is_held, actor=self.actor)
        return self.answer(session)

    def perform_destroy(self, instance: Session) -> None:
        delete_session(instance, actor=self.actor)
