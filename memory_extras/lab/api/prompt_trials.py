"""Trying a prompt's text over REST, on a person's session or stream, beside the version in force."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory_extras.lab.trials.parts import given, is_about_streams, parts
from memory_extras.lab.trials.try_prompt import CannotTry, try_prompt
from memory_extras.lab.trials.try_prompt import TrialAnswer as Tried
from moments_app.interfaces.api.prompts import NUMBER_MAX, OfPromptViewSet
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from moments_app.prompts.versions import MAX_CHARS, NO_WORD, with_line_breaks
from sessions_app.api.fields import CONTRADICTORY, IntegerField, PublicIdField, UUIDField, WordsField
from sessions_app.api.person import PersonQuery
from sessions_app.api.sessions import session_or_404
from sessions_app.api.viewsets import PersonViewSet, one_or_404
from sessions_app.limited_operators import unlimited
from sessions_app.models import Session


class TryInput(PersonQuery):
    """A text, and the person's session or stream that it is tried on."""

    version = IntegerField(min_value=1, max_value=NUMBER_MAX, required=False, help_text="A version that is saved.")
    content = WordsField(
        max_length=MAX_CHARS, required=False, error_messages={"blank": NO_WORD}, help_text="Instead: a text that isn't."
    )
    session_id = PublicIdField(required=False)
    stream_id = UUIDField(required=False, help_text="Instead, for consolidations.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that one text is named, and one thing to try it on."""
        for one, other in (("version", "content"), ("session_id", "stream_id")):
            if (one in attrs) == (other in attrs):
                raise serializers.ValidationError(f"Name {one} or {other}.", CONTRADICTORY)
        return attrs


class PartAnswer(serializers.Serializer[Any]):
    """A part of what an engine made."""

    heading = serializers.CharField()
    text = serializers.CharField()
    about = serializers.CharField()


class SideAnswer(serializers.Serializer[Any]):
    """What an engine made with one text."""

    version = serializers.IntegerField(source="version.number", allow_null=True, help_text="Null: it isn't saved.")
    is_active = serializers.BooleanField(help_text="It is in force.")
    error = serializers.CharField(help_text="Why nothing came of it; else blank.")
    seconds = serializers.FloatField()
    tokens = serializers.IntegerField()
    parts = PartAnswer(many=True)


class TrialAnswer(serializers.Serializer[Any]):
    """What came of a trial; nothing of it is kept."""

    process = serializers.CharField()
    given = serializers.CharField(help_text="What of the session or stream the engine was given.")
    is_again = serializers.BooleanField(help_text="Nothing was waiting, so what was done last was done again.")
    sides = SideAnswer(many=True, help_text="The version in force first; one alone where the text is the same.")


class PromptTrialViewSet(PersonViewSet[PromptResource], OfPromptViewSet[PromptResource]):
    """A trial of a text."""

    lookup_url_kwarg = "name"
    lookup_value_converter = "public_id"
    inputs = {"try_text": TryInput}
    answers = {"try_text": TrialAnswer}
    refuses = {"try_text": [CannotTry]}
    own_transaction = ("try_text",)

    @extend_schema(operation_id="prompts_try")
    @action(detail=True, methods=["post"], url_path="try")
    def try_text(self, request: Request, name: str) -> Response:
        """Has the model work on a session or stream with a text and with the version in force; nothing is kept of it.

        It takes as long as the model does, and costs what its calls do.
        """
        with unlimited():
            version = self._version(self.prompt(name))
        with self.transaction():
            subject = self._subject(version.resource)
        with unlimited():
            trial = try_prompt(version, subject)
        active = version.resource.active_version_id
        sides = [_side(made, active) for made in trial.answers]
        return self.answer(
            {"process": trial.process, "given": given(trial.input), "is_again": trial.is_again, "sides": sides}
        )

    def _version(self, prompt: PromptResource) -> PromptVersion:
        """Return the version that the body names, or one with its text that is not saved."""
        if "version" in self.validated_data:
            versions = prompt.versions.select_related("resource__active_version")
            return one_or_404(versions, number=self.validated_data["version"])
        return PromptVersion(resource=prompt, content=with_line_breaks(self.validated_data["content"]))

    def _subject(self, prompt: PromptResource) -> Session | MemoryStream:
        """Return the person's session or stream; those of others are as if they were not.

        Raises:
            ValidationError: the prompt is about the other of the two.
        """
        if is_about_streams(prompt) != ("stream_id" in self.validated_data):
            raise serializers.ValidationError(
                "Consolidations are tried on streams, all else on sessions.", CONTRADICTORY
            )
        if "session_id" in self.validated_data:
            return session_or_404(self.person, self.validated_data["session_id"])
        streams = MemoryStream.objects.filter(user=self.found_person)
        return one_or_404(streams, stream_id=self.validated_data["stream_id"])


def _side(made: Tried, active: int | None) -> dict[str, Any]:
    saved = made.version if made.version.pk else None
    return {
        "version": saved or {"number": None},
        "is_active": bool(saved and saved.pk == active),
        "error": made.error,
        "seconds": made.seconds,
        "tokens": made.tokens,
        "parts": parts(made.answer) if made.answer else [],
    }
