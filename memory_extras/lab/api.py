"""Probes and prompt trials over REST.

A probe is a question with the expected answer. Its results say how much of the answer reached the context.
"""

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from memory_extras.lab.models import (
    EXPECTED_MAX_CHARS,
    QUESTION_MAX_CHARS,
    Probe,
    ProbeQuerySet,
    ProbeResult,
    ProbeResultQuerySet,
)
from memory_extras.lab.probes.run import RunProbes
from memory_extras.lab.probes.save import CannotProbe, Draft, TooManyProbes, change_probe, save_probe
from memory_extras.lab.trials.parts import describe_input, is_about_streams, readable_parts
from memory_extras.lab.trials.try_prompt import CannotTry, try_prompt
from memory_extras.lab.trials.try_prompt import TrialAnswer as Tried
from moments_app.interfaces.api.jobs import Accepted
from moments_app.interfaces.api.prompts import NUMBER_MAX, BasePromptViewSet
from moments_app.models import Job, MemoryStream, PromptResource, PromptVersion
from moments_app.prompts import BLANK_PROMPT, MAX_CHARS, normalize_newlines
from sessions_app.api.fields import (
    CONTRADICTORY,
    SEQUENCE_MAX,
    BooleanField,
    IntegerField,
    PersonQuery,
    PublicIdField,
    UUIDField,
    WordsField,
)
from sessions_app.api.pagination import PageQuery
from sessions_app.api.viewsets import PersonViewSet, one_or_404, session_or_404
from sessions_app.limited_operators import unlimited
from sessions_app.models import Session

EVIDENCE_MAX = 50
BLANK = {"blank": "Enter at least one word."}


class ProbesQuery(PageQuery):
    """Filters of a list of probes."""

    session_id = PublicIdField(required=False, help_text="The session in which the question is asked.")
    is_met = BooleanField(
        required=False, help_text="Return only probes whose latest result was met (`true`) or missed (`false`)."
    )


class ProbePatch(PersonQuery):
    """The fields of a probe that can be changed."""

    expected = WordsField(max_length=EXPECTED_MAX_CHARS, required=False, error_messages=BLANK)
    evidence_session_id = PublicIdField(
        required=False,
        help_text="The session whose turns contain the answer. Default for a new probe: the session in "
        "which the question is asked.",
    )
    evidence_sequences = serializers.ListField(
        child=IntegerField(min_value=0, max_value=SEQUENCE_MAX),
        required=False,
        max_length=EVIDENCE_MAX,
        help_text="Sequence numbers of the turns that contain the answer.",
    )


class ProbeInput(ProbePatch):
    """A new probe."""

    question = WordsField(max_length=QUESTION_MAX_CHARS, error_messages=BLANK)
    expected = WordsField(max_length=EXPECTED_MAX_CHARS, error_messages=BLANK)
    session_id = PublicIdField(
        required=False, help_text="The session in which the question is asked. Default: the person's latest session."
    )


class ProbeAnswer(serializers.ModelSerializer[Probe]):
    """A question, the expected answer, and the latest result."""

    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    evidence_session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)
    run_at = serializers.DateTimeField(default=None, allow_null=True, help_text="Time of the latest run.")
    is_met = serializers.BooleanField(source="was_met", default=None, allow_null=True)

    class Meta:
        model = Probe
        fields = (
            "probe_id",
            "session_id",
            "question",
            "expected",
            "evidence_session_id",
            "evidence_sequences",
            "run_at",
            "is_met",
            "created_by",
            "created_at",
            "updated_at",
        )


class ProbeResultAnswer(serializers.ModelSerializer[ProbeResult]):
    """How much of the expected answer the context contained."""

    probe_id = serializers.UUIDField(source="probe.probe_id")
    refs = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Addresses of the items in the context, grouped by layer.",
    )
    setup = serializers.DictField(help_text="The prompt versions and settings with which the context was built.")

    class Meta:
        model = ProbeResult
        fields = (
            "run_id",
            "probe_id",
            "is_met",
            "words_found",
            "words_count",
            "missing_words",
            "evidence_found",
            "evidence_count",
            "tokens",
            "refs",
            "setup",
            "problem",
            "created_at",
        )


class RunInput(PersonQuery):
    """The probes to run."""

    session_id = PublicIdField(
        required=False, help_text="Run only probes whose question is asked in this session. Default: all probes."
    )


@extend_schema_view(
    list=extend_schema(description="Return the probes of a person, newest first, each with its latest result."),
    retrieve=extend_schema(description="Return a probe with its latest result."),
    destroy=extend_schema(description="Delete a probe and its results."),
)
class ProbeViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, PersonViewSet[Probe]):
    """A person's probes."""

    queryset = Probe.objects.select_related("session", "source_session").newest_first()
    serializer_class = ProbeAnswer
    lookup_field = "probe_id"
    lookup_value_converter = "uuid"
    inputs = {"list": ProbesQuery, "create": ProbeInput, "partial_update": ProbePatch, "run": RunInput}
    answers = {"create": {201: ProbeAnswer, 200: ProbeAnswer}, "run": {202: Accepted}}
    refuses = {"create": [CannotProbe, TooManyProbes], "partial_update": [CannotProbe]}
    filters = {"session_id": "session__session_id", "is_met": "was_met"}

    def get_queryset(self) -> ProbeQuerySet:
        """Return the person's probes, each with its latest result."""
        rows: ProbeQuerySet = super().get_queryset()
        return rows.with_latest()

    def create(self, request: Request) -> Response:
        """Create a probe. If the session already has one with this question, return it with 200."""
        session = self.session("session_id")
        draft = Draft(
            self.validated_data["question"],
            self.validated_data["expected"],
            session=session,
            source_session=self.session("evidence_session_id") or session,
            evidence=self.validated_data.get("evidence_sequences", ()),
        )
        probe, is_new = save_probe(self.found_person, draft, created_by=self.actor)
        return self.created(one_or_404(self.get_queryset(), pk=probe.pk), is_new=is_new)

    def partial_update(self, request: Request, probe_id: uuid.UUID) -> Response:
        """Change the expected answer or the evidence."""
        probe = self.get_object()
        draft = Draft(
            probe.question,
            self.validated_data.get("expected", probe.expected),
            source_session=self.session("evidence_session_id") or probe.source_session or probe.session,
            evidence=self.validated_data.get("evidence_sequences", probe.evidence_sequences),
        )
        change_probe(probe, draft)
        probe.save()
        return self.answer(self.get_object())

    @action(detail=False, methods=["post"])
    def run(self, request: Request) -> Response:
        """Queue a run of a person's probes. No model is called; only the contexts are checked.

        The job's `result` has the number of probes that were met. The `run_id` of the results is the `job_id`.
        """
        person, session = self.found_person, self.session("session_id")
        job = Job.objects.request(RunProbes.name, session, user_id=person.pk, requested_by=self.actor, force=True)
        return self.answer({"job_id": job.job_id}, status.HTTP_202_ACCEPTED)

    def session(self, name: str) -> Session | None:
        """Return the session named in a field of the body, or None if the field is missing."""
        return session_or_404(self.person, self.validated_data[name]) if name in self.validated_data else None


@extend_schema_view(list=extend_schema(description="Return the results of a probe, newest first."))
class ProbeResultViewSet(ListModelMixin, PersonViewSet[ProbeResult]):
    """The results of a probe."""

    queryset = ProbeResult.objects.select_related("probe").newest_first()
    serializer_class = ProbeResultAnswer

    def get_queryset(self) -> ProbeResultQuerySet:
        """Return the results of this person's probe."""
        probe = one_or_404(Probe.objects.for_user(self.person), probe_id=self.kwargs["probe_id"])
        results: ProbeResultQuerySet = super().get_queryset()
        return results.filter(probe=probe)


# --- prompt trials ---


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
    long_running = ("try_text",)

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
        sides = [_side(result, active) for result in trial.answers]
        return self.answer(
            {"process": trial.process, "given": describe_input(trial.input), "is_again": trial.is_again, "sides": sides}
        )

    def _version(self, prompt: PromptResource) -> PromptVersion:
        """Return the version that the body names, or an unsaved one with its text."""
        if "version" in self.validated_data:
            versions = prompt.versions.select_related("resource__active_version")
            return one_or_404(versions, number=self.validated_data["version"])
        return PromptVersion(resource=prompt, content=normalize_newlines(self.validated_data["content"]))

    def _subject(self, prompt: PromptResource) -> Session | MemoryStream:
        """Return the person's session or stream. For another person's, raise the same error as for a missing one.

        Raises:
            ValidationError: The prompt needs a stream instead of a session, or the reverse.
        """
        if is_about_streams(prompt) != ("stream_id" in self.validated_data):
            raise serializers.ValidationError(
                "Send a stream_id for a consolidation prompt, and a session_id for all others.", CONTRADICTORY
            )
        if "session_id" in self.validated_data:
            return session_or_404(self.person, self.validated_data["session_id"])
        streams = MemoryStream.objects.filter(user=self.found_person)
        return one_or_404(streams, stream_id=self.validated_data["stream_id"])


def _side(result: Tried, active: int | None) -> dict[str, Any]:
    saved = result.version if result.version.pk else None
    return {
        "version": saved or {"number": None},
        "is_active": bool(saved and saved.pk == active),
        "error": result.error,
        "seconds": result.seconds,
        "tokens": result.tokens,
        "parts": readable_parts(result.answer) if result.answer else [],
    }
