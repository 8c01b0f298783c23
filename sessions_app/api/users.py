"""People over REST: profile, export, erasure."""

import zoneinfo
from tempfile import TemporaryFile
from typing import Any

from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.mixins import RetrieveModelMixin
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.fields import JsonObjectField, StrictSerializer, TextField
from sessions_app.api.viewsets import PersonViewSet, update
from sessions_app.limited_operators import unlimited
from sessions_app.models import UserProfile
from sessions_app.models.api_key import EXPORT
from sessions_app.models.user_profile import EDITED
from sessions_app.people.erase import OnHold, erase_user
from sessions_app.people.export import CannotExport, export_user
from sessions_app.signals import profile_edited


class TimezoneField(TextField):
    """The IANA name of a time zone. Not an enum, because some names are not valid constants in generated clients."""

    names = sorted(zoneinfo.available_timezones())
    pattern = f"^({'|'.join(names)})$".replace("+", r"\+")
    default_error_messages = {"invalid_choice": "Enter an IANA time zone, such as Europe/Berlin."}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if text not in self.names:
            self.fail("invalid_choice")
        return text


class ProfilePatch(StrictSerializer):
    """The fields of a profile that can be changed."""

    summary = TextField(allow_blank=True, max_length=20_000, required=False)
    interests = serializers.ListField(child=TextField(max_length=255), max_length=50, required=False)
    preferred_topics = serializers.ListField(child=TextField(max_length=255), max_length=50, required=False)
    timezone = TimezoneField(required=False)
    metadata = JsonObjectField(required=False)


class ProfileAnswer(serializers.ModelSerializer[UserProfile]):
    """A person's profile."""

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
    """The result of an erasure."""

    erasure_id = serializers.UUIDField(help_text="Id of the erasure in the event log.")
    rows = serializers.DictField(
        child=serializers.IntegerField(), help_text="Number of erased rows and names, by kind."
    )
    left = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Number of rows of each kind that a check found after the erasure. Always 0, because the platform "
        "rolls back an erasure that leaves a row.",
    )
    kept = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Number of anonymous rows that remain, by kind.",
    )
    has_files_left = serializers.BooleanField(
        help_text="True if the archive storage failed, so that some archive files are not deleted yet. The platform "
        "deletes these files when the storage is available again."
    )


class ZipRenderer(JSONRenderer):
    """Lets clients request the export by its media type. The view streams the file itself; this renders only errors."""

    media_type = "application/zip"
    format = "zip"


@extend_schema_view(retrieve=extend_schema(description="Return the profile of a person."))
class UserViewSet(RetrieveModelMixin, PersonViewSet[UserProfile]):
    """A person: the profile, the export, the erasure."""

    queryset = UserProfile.objects.all()
    serializer_class = ProfileAnswer
    lookup_field = "user_id"
    lookup_value_converter = "public_id"
    inputs = {"partial_update": ProfilePatch}
    answers = {"destroy": ErasedAnswer, "export": {(200, "application/zip"): OpenApiTypes.BINARY}}
    refuses = {"destroy": [OnHold], "export": [CannotExport]}
    own_transaction = ("destroy", "export")
    long_running = ("destroy", "export")
    scopes = {"export": EXPORT}

    def get_object(self) -> UserProfile:
        return self.found_person

    def partial_update(self, request: Request, user_id: str) -> Response:
        """Change a profile.

        `summary` is placed at the start of the profile. `interests` and `preferred_topics` are listed before those that
        the platform derives from facts.
        """
        profile = UserProfile.objects.locked().get(pk=self.found_person.pk)
        update(profile, self.validated_data)
        edits = {name: self.validated_data[name] for name in EDITED if name in self.validated_data}
        if edits:
            profile_edited.send(UserProfile, profile=profile, edits=edits, actor=self.actor)
            profile.refresh_from_db()
        return self.answer(profile)

    @unlimited()
    def destroy(self, request: Request, user_id: str) -> Response:
        """Erase a person and all stored data about them. This can't be undone."""
        if self.user_id() is None:
            raise NotFound
        try:
            return self.answer(erase_user(user_id, application=self.application, actor=self.actor))
        except UserProfile.DoesNotExist:
            raise NotFound from None

    @action(detail=True, renderer_classes=[JSONRenderer, ZipRenderer])
    def export(self, request: Request, user_id: str) -> FileResponse:
        """Return all stored data about a person as a zip file."""
        if self.user_id() is None:
            raise NotFound
        file = TemporaryFile()  # noqa: SIM115 (the response closes it)
        try:
            export_user(user_id, file, application=self.application)
        except UserProfile.DoesNotExist:
            raise NotFound from None
        file.seek(0)
        return FileResponse(file, as_attachment=True, filename="export.zip", content_type="application/zip")
