"""Sessions over REST."""

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound
from rest_framework.response import Response

from sessions_app.api.fields import BooleanField, JsonObjectField, PublicIdField, TextField
from sessions_app.api.pages import PageAnswer, PageQuery
from sessions_app.api.permissions import require_scope
from sessions_app.api.person import PersonQuery
from sessions_app.api.person_view import PersonView, created, operation, presented, update
from sessions_app.daily_limits import count_values
from sessions_app.insert import insert_unless_there
from sessions_app.models import Session, UserProfile
from sessions_app.people.delete_session import CannotDelete, delete_session


class SessionInput(PersonQuery):
    """A new session."""

    session_id = PublicIdField()
    agent_id = PublicIdField(default="default")
    source = TextField(max_length=64, default="api")  # type: ignore[assignment]
    title = TextField(allow_blank=True, max_length=255, default="")
    metadata = JsonObjectField(default=dict)
    compact_on_request = BooleanField(
        default=None, allow_null=True, help_text="Digest before a load or context. Null: as set for all sessions."
    )


class SessionPatch(PersonQuery):
    """What can be changed of a session."""

    title = TextField(allow_blank=True, max_length=255, required=False)
    legal_hold = BooleanField(required=False, help_text="Nothing of it is archived or deleted. Needs scope admin.")
    metadata = JsonObjectField(required=False)
    compact_on_request = BooleanField(
        required=False, allow_null=True, help_text="Digest before a load or context. Null: as set for all sessions."
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


class SessionList(PageAnswer):
    sessions = SessionAnswer(many=True)


def sessions_of(person: UserProfile | None) -> QuerySet[Session]:
    """Return the sessions of a person."""
    return Session.objects.for_user(person).select_related("user")


def session_or_404(person: UserProfile | None, session_id: str) -> Session:
    """Return this person's session; one that isn't there and somebody else's are answered alike.

    Raises:
        NotFound: there is none.
    """
    session = Session.objects.of_person(person, session_id) if person else None
    if session is None:
        raise NotFound
    return session


class SessionsView(PersonView):
    """A person's sessions."""

    @operation(SessionList, query=PageQuery)
    def get(self) -> Response:
        """Sessions of a person, latest activity first."""
        return self.page(SessionList, sessions_of(self.person).order_by("-last_activity_at", "-id"))

    @operation({201: SessionAnswer, 200: SessionAnswer}, body=SessionInput, creates_person=True)
    def post(self) -> Response:
        """Makes a session; answers 200 with the present one when it is there."""
        is_new = insert_unless_there(Session(user=self.person, **self.body))
        if is_new:
            count_values(*self.body.values())
        return created(SessionAnswer(session_or_404(self.person, self.body["session_id"])), is_new=is_new)


class SessionView(PersonView):
    """One session."""

    @operation(SessionAnswer, query=PersonQuery)
    def get(self, session_id: str) -> Response:
        """The session with its counters."""
        return Response(presented(SessionAnswer, session_or_404(self.person, session_id)))

    @operation(SessionAnswer, body=SessionPatch)
    def patch(self, session_id: str) -> Response:
        """Changes title, metadata, whether it is digested on request; the legal hold with a key of scope `admin`."""
        is_held = self.body.pop("legal_hold", None)
        if is_held is not None:
            require_scope(self.request, "admin")
        session = session_or_404(self.person, session_id)
        update(session, self.body)
        if is_held is not None:
            session.hold(is_held, actor=self.actor)
        return Response(presented(SessionAnswer, session))

    @operation({204: OpenApiResponse(description="Deleted.")}, query=PersonQuery, refuses=[CannotDelete], is_long=True)
    def delete(self, session_id: str) -> Response:
        """Deletes the session with its transcript and archives; moments made of it stay. Under legal hold: 409."""
        delete_session(session_or_404(self.person, session_id), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)
