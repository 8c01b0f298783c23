"""Trials of prompt texts over REST, on a person's session or stream, compared with the active version."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory_extras.lab.trials.parts import given, is_about_streams, parts
from memory_extras.lab.trials.try_prompt import CannotTry, try_prompt
from memory_extras.lab.trials.try_prompt import TrialAnswer as Tried
from moments_app.interfaces.api.prompts import NUMBER_MAX, BasePromptViewSet
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from moments_app.prompts import BLANK_PROMPT, MAX_CHARS, normalize_newlines
from sessions_app.api.fields import CONTRADICTORY, IntegerField, PublicIdField, UUIDField, WordsField
from sessions_app.api.permissions import PersonQuery
from sessions_app.api.viewsets import PersonViewSet, one_or_404, session_or_404
from sessions_app.limited_operators import unlimited
from sessions_app.models import Session


class TryInput(PersonQuery):
    """A prompt text, and the session or stream to try it on."""

    version = IntegerField(
        min_value=1, max_value=NUMBER_MAX, required=False, help_text="Number of the saved prompt version to try."
    )
    content = WordsField(
        max_length=MAX_CHARS,
        required=False,
        error_messages={"blank": BLANK_PROMPT},
        help_text="Text to try, if it is not saved as a version.",
    )
    session_id = PublicIdField(required=False)
    stream_id = UUIDField(
        required=False,
        help_text="Consolidation prompts are tried on a stream. All other prompts are tried on a session.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that there is exactly one text, and one session or stream."""
        for one, other in (("version", "content"), ("session_id", "stream_id")):
            if (one in attrs) == (other in attrs):
                raise serializers.ValidationError(f"Send {one} or {other}.", CONTRADICTORY)
        return attrs


class PartAnswer(serializers.Serializer[Any]):
    """A part of an engine's result."""

    heading = serializers.CharField()
    text = serializers.CharField()
    about = serializers.CharField()


class SideAnswer(serializers.Serializer[Any]):
    """The result with one prompt text."""

    version = serializers.IntegerField(
        source="version.number", allow_null=True, help_text="Number of the version. Null if the text was not saved."
    )
    is_active = serializers.BooleanField(help_text="Whether jobs currently use this version.")
    error = serializers.CharField(help_text="Why the trial failed. Blank if the trial succeeded.")
    seconds = serializers.FloatField()
    tokens = serializers.IntegerField()
    parts = PartAnswer(many=True)


class TrialAnswer(serializers.Serializer[Any]):
    """The result of a trial. It is not stored."""

    process = serializers.CharField()
    given = serializers.CharField(help_text="Input of the engine.")
    is_again = serializers.BooleanField(
        help_text="True if no new work was waiting. In this case, the trial repeated the latest work."
    )
    sides = SideAnswer(
        many=True,
        help_text="The first result is from the active version, and the second is from the new text. If both texts "
        "are the same, there is only one result.",
    )


class PromptTrialViewSet(PersonViewSet[PromptResource], BasePromptViewSet[PromptResource]):
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
        """Run the model on a session or stream with a new text and with the active version. The results are not stored.

        The request waits for the model, and its calls are billed.
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
        """Return the version that the body names, or an unsaved one with its text."""
        if "version" in self.validated_data:
            versions = prompt.versions.select_related("resource__active_version")
            return one_or_404(versions, number=self.validated_data["version"])
        return PromptVersion(resource=prompt, content=normalize_newlines(self.validated_data["content"]))

    def _subject(self, prompt: PromptResource) -> Session | MemoryStream:
        """Return the person's session or stream. Another person's gets the error for a missing one.

        Raises:
            ValidationError: The prompt needs the other of the two.
        """
        if is_about_streams(prompt) != ("stream_id" in self.validated_data):
            raise serializers.ValidationError(
                "Send a stream_id for a consolidation prompt, and a session_id for all others.", CONTRADICTORY
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
