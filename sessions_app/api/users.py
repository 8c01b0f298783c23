"""People over REST: the profile, the export, the erasure."""

import zoneinfo
from tempfile import TemporaryFile
from typing import Any

from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from sessions_app.api.fields import JsonObjectField, StrictSerializer, TextField
from sessions_app.api.person import PersonQuery
from sessions_app.api.person_view import PersonView, operation, update
from sessions_app.models import UserProfile
from sessions_app.models.api_key import EXPORT
from sessions_app.people.erase import OnHold, erase_user
from sessions_app.people.export import CannotExport, export_user


class TimezoneField(TextField):
    """The IANA name of a time zone: a text in generated clients, where some names make no constants."""

    names = sorted(zoneinfo.available_timezones())
    pattern = f"^({'|'.join(names)})$".replace("+", r"\+")
    default_error_messages = {"invalid_choice": "Not an IANA time zone, like Europe/Berlin."}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if text not in self.names:
            self.fail("invalid_choice")
        return text


class ProfilePatch(StrictSerializer):
    """What can be changed of a profile."""

    summary = TextField(allow_blank=True, max_length=20_000, required=False)
    interests = serializers.ListField(child=TextField(max_length=255), max_length=50, required=False)
    preferred_topics = serializers.ListField(child=TextField(max_length=255), max_length=50, required=False)
    timezone = TimezoneField(required=False)
    metadata = JsonObjectField(required=False)


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


class UserView(PersonView):
    """One person's profile."""

    @operation(ProfileAnswer, query=PersonQuery)
    def get(self, user_id: str) -> Response:
        """What is known of the person."""
        return Response(ProfileAnswer(self.found_person).data)

    @operation(ProfileAnswer, body=ProfilePatch)
    def patch(self, user_id: str) -> Response:
        """Corrects the profile."""
        profile = UserProfile.objects.locked().get(pk=self.found_person.pk)
        profile.keep_version(self.actor)
        update(profile, self.body)
        return Response(ProfileAnswer(profile).data)

    @operation(
        ErasedAnswer,
        query=PersonQuery,
        refuses=[OnHold],
        in_transaction=False,
        sees_all=True,
        is_long=True,
    )
    def delete(self, user_id: str) -> Response:
        """Erases the person: everything that is kept of them, which can't be undone."""
        if self.user_id() is None:
            raise NotFound
        try:
            return Response(ErasedAnswer(erase_user(user_id, application=self.application, actor=self.actor)).data)
        except UserProfile.DoesNotExist:
            raise NotFound from None


class ZipRenderer(JSONRenderer):
    """Lets clients ask for the archive by its type. The archive is a file; what this renders is an error."""

    media_type = "application/zip"
    format = "zip"


class ExportView(PersonView):
    """Everything about one person."""

    renderer_classes = [JSONRenderer, ZipRenderer]
    scopes = {"GET": EXPORT}

    @operation(
        {(200, "application/zip"): OpenApiTypes.BINARY},
        query=PersonQuery,
        refuses=[CannotExport],
        operation_id="users_export",
        in_transaction=False,
        is_long=True,
    )
    def get(self, user_id: str) -> FileResponse:
        """All that is kept of the person, as a zip."""
        if self.user_id() is None:
            raise NotFound
        file = TemporaryFile()  # noqa: SIM115 (the response closes it)
        try:
            export_user(user_id, file, application=self.application)
        except UserProfile.DoesNotExist:
            raise NotFound from None
        file.seek(0)
        return FileResponse(file, as_attachment=True, filename="export.zip", content_type="application/zip")
