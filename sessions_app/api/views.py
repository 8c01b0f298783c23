"""Sessions, messages and profiles over REST. A view parses, calls one thing, presents."""

from dataclasses import asdict
from tempfile import TemporaryFile
from typing import Any

from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, PolymorphicProxySerializer, extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from sessions_app.api import serializers as shapes
from sessions_app.api.errors import Conflict
from sessions_app.api.permissions import require_scope
from sessions_app.api.person import acting_as, key_of, user_id_of
from sessions_app.api.requests import paged, parsed, query, session_or_404, update
from sessions_app.insert import insert_unless_there
from sessions_app.models import Message, Session, UserProfile
from sessions_app.people.delete_session import CannotDelete, delete_session
from sessions_app.people.erase import OnHold, erase_user
from sessions_app.people.export import CannotExport, export_user
from sessions_app.signals import digest_wanted
from sessions_app.transcript.append import append
from sessions_app.transcript.load import load_session_messages, page_of_messages


class SessionsView(APIView):
    """A person's sessions."""

    @extend_schema(parameters=[shapes.PageQuery], responses=shapes.SessionList, operation_id="sessions_list")
    def get(self, request: Request) -> Response:
        """Sessions of a person, latest activity first."""
        asked = query(shapes.PageQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            sessions = Session.objects.for_user(user).select_related("user").order_by("-last_activity_at", "-id")
            return paged(sessions, "sessions", shapes.SessionAnswer, asked)

    @extend_schema(request=shapes.SessionInput, responses={201: shapes.SessionAnswer, 200: shapes.SessionAnswer})
    def post(self, request: Request) -> Response:
        """Makes a session; answers 200 with the present one when it is there."""
        asked = parsed(shapes.SessionInput, request.data).validated_data
        with acting_as(request, asked.pop("user_id", None), create=True) as user:
            created = insert_unless_there(Session(user=user, **asked))
            session = session_or_404(user, asked["session_id"])
        code = status.HTTP_201_CREATED if created else status.HTTP_200_OK
        return Response(shapes.SessionAnswer(session).data, status=code)


class SessionView(APIView):
    """One session."""

    @extend_schema(parameters=[shapes.PersonQuery], responses=shapes.SessionAnswer, operation_id="sessions_get")
    def get(self, request: Request, session_id: str) -> Response:
        """The session with its counters."""
        asked = query(shapes.PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            return Response(shapes.SessionAnswer(session_or_404(user, session_id)).data)

    @extend_schema(request=shapes.SessionPatch, responses=shapes.SessionAnswer)
    def patch(self, request: Request, session_id: str) -> Response:
        """Changes title, metadata, whether it is digested on request; the legal hold with a key of scope `admin`."""
        asked = parsed(shapes.SessionPatch, request.data).validated_data
        if "legal_hold" in asked:
            require_scope(request, "admin")
        with acting_as(request, asked.pop("user_id", None)) as user:
            session = session_or_404(user, session_id)
            if "legal_hold" in asked:
                session.hold(asked.pop("legal_hold"), actor=key_of(request).actor)
            update(session, asked)
        return Response(shapes.SessionAnswer(session).data)

    @extend_schema(parameters=[shapes.PersonQuery], responses={204: OpenApiResponse(description="Deleted.")})
    def delete(self, request: Request, session_id: str) -> Response:
        """Deletes the session with its transcript and archives; moments made of it stay. Under legal hold: 409."""
        asked = query(shapes.PersonQuery, request).validated_data
        with acting_as(request, asked.get("user_id")) as user:
            try:
                delete_session(session_or_404(user, session_id), actor=key_of(request).actor)
            except CannotDelete as error:
                raise Conflict(str(error)) from error
        return Response(status=status.HTTP_204_NO_CONTENT)


class MessagesView(APIView):
    """The transcript of one session."""

    @extend_schema(request=shapes.AppendInput, responses={201: shapes.AppendAnswer, 200: shapes.AppendAnswer})
    def post(self, request: Request, session_id: str) -> Response:
        """Appends up to 500 messages, all or none; makes the session if it isn't there.

        A message whose `external_id` is in the session already is returned with `created: false`, not added again.
        """
        body = parsed(shapes.AppendInput, request.data)
        asked = body.validated_data
        with acting_as(request, asked.get("user_id"), create=True) as user:
            assert user is not None  # it was made
            appended = append(
                user,
                session_id,
                body.batch(),
                agent_id=asked.get("agent_id", ""),
                source=asked.get("source", ""),
            )
        added = any(created for _, created in appended.messages)
        code = status.HTTP_201_CREATED if added else status.HTTP_200_OK
        return Response(shapes.append_data(appended, user.user_id), status=code)

    @extend_schema(
        parameters=[shapes.MessagesQuery],
        responses=PolymorphicProxySerializer(
            "Messages", [shapes.LiveMessages, shapes.MessagePage], resource_type_field_name=None
        ),
    )
    def get(self, request: Request, session_id: str) -> Response:
        """`view=live`: the latest partition event and the newest turns after it. `view=all`: pages by sequence."""
        asked = query(shapes.MessagesQuery, request).validated_data
        if asked["view"] == "all":
            with acting_as(request, asked.get("user_id")) as user:
                return Response(_page(session_or_404(user, session_id), asked))
        return self._live(request, session_id, asked)

    def _live(self, request: Request, session_id: str, asked: dict[str, Any]) -> Response:
        with acting_as(request, asked.get("user_id")) as user:
            session = session_or_404(user, session_id)
            if not session.wants_digest:
                return Response(_live(session, asked))
        digest_wanted.send(sender=Session, session=session)
        with acting_as(request, asked.get("user_id")) as user:
            return Response(_live(session_or_404(user, session_id), asked))


def _live(session: Session, asked: dict[str, Any]) -> dict[str, Any]:
    loaded = load_session_messages(session, asked["limit"])
    return {
        "messages": _present(session, loaded.messages, asked),
        "has_partition_event": loaded.has_partition_event,
        "omitted": asdict(loaded.omitted) if loaded.omitted else None,
        "live_from_sequence": session.live_from_sequence,
        "message_count": session.message_count,
    }


def _page(session: Session, asked: dict[str, Any]) -> dict[str, Any]:
    page = page_of_messages(session, asked["limit"], after=asked.get("after"), before=asked.get("before"))
    return {"messages": _present(session, page.messages, asked), "has_more": page.has_more}


def _present(session: Session, messages: list[Message], asked: dict[str, Any]) -> list[dict[str, Any]]:
    for message in messages:
        message.session = session
    return [shapes.message_data(message, compress=asked["compress"]) for message in messages]


class UserView(APIView):
    """One person's profile."""

    @extend_schema(parameters=[shapes.PersonQuery], responses=shapes.ProfileAnswer)
    def get(self, request: Request, user_id: str) -> Response:
        """What is known of the person."""
        with acting_as(request, user_id) as user:
            return Response(shapes.ProfileAnswer(_found(user)).data)

    @extend_schema(request=shapes.ProfilePatch, responses=shapes.ProfileAnswer)
    def patch(self, request: Request, user_id: str) -> Response:
        """Corrects the profile."""
        asked = parsed(shapes.ProfilePatch, request.data).validated_data
        with acting_as(request, user_id) as user:
            profile = UserProfile.objects.locked().get(pk=_found(user).pk)
            profile.keep_version(key_of(request).actor)
            update(profile, asked)
        return Response(shapes.ProfileAnswer(profile).data)

    @extend_schema(responses={200: shapes.ErasedAnswer, 409: OpenApiResponse(description="Sessions are on hold.")})
    def delete(self, request: Request, user_id: str) -> Response:
        """Erases the person: everything that is kept of them, which can't be undone."""
        if user_id_of(request, user_id) is None:
            raise NotFound
        try:
            erased = erase_user(user_id, actor=key_of(request).actor)
        except UserProfile.DoesNotExist:
            raise NotFound from None
        except OnHold as error:
            raise Conflict(str(error), "legal_hold") from error
        return Response(shapes.ErasedAnswer(erased).data)


class ExportView(APIView):
    """Everything about one person."""

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY}, operation_id="users_export")
    def get(self, request: Request, user_id: str) -> FileResponse:
        """All that is kept of the person, as a zip."""
        if user_id_of(request, user_id) is None:
            raise NotFound
        file = TemporaryFile()  # noqa: SIM115 (the response closes it)
        try:
            export_user(user_id, file)
        except UserProfile.DoesNotExist:
            raise NotFound from None
        except CannotExport as error:
            raise APIException(str(error), "archive_unreadable") from error
        file.seek(0)
        return FileResponse(file, as_attachment=True, filename="export.zip", content_type="application/zip")


def _found(user: UserProfile | None) -> UserProfile:
    if user is None:
        raise NotFound
    return user
