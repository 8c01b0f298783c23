"""Probes over REST: questions with the answer expected, and what of it reached the context when they were asked."""

import uuid

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers, status
from rest_framework.response import Response

from moments_app.interfaces.api.jobs import Accepted, accepted
from moments_app.models import Job, Probe, ProbeResult
from moments_app.models.probe import EXPECTED_MAX_CHARS, QUESTION_MAX_CHARS, ProbeQuerySet
from moments_app.probes.keep import CannotProbe, Draft, TooManyProbes, change_probe, keep_probe
from moments_app.probes.run import RunProbes
from sessions_app.api.fields import SEQUENCE_MAX, BooleanField, IntegerField, PublicIdField, WordsField
from sessions_app.api.pages import PageAnswer, PageQuery
from sessions_app.api.person import PersonQuery
from sessions_app.api.person_view import PersonView, created, one_or_404, operation
from sessions_app.api.sessions import session_or_404
from sessions_app.daily_limits import count_values
from sessions_app.models import Session

EVIDENCE_MOST = 50
BLANK = {"blank": "It has at least one word."}


class ProbesQuery(PageQuery):
    """Filters of a list of probes."""

    session_id = PublicIdField(required=False, help_text="Where they are asked.")
    is_met = BooleanField(required=False, help_text="By their last run.")


class ProbePatch(PersonQuery):
    """What can be changed of a probe."""

    expected = WordsField(max_length=EXPECTED_MAX_CHARS, required=False, error_messages=BLANK)
    evidence_session_id = PublicIdField(
        required=False, help_text="Where the evidence was said; left out: as it is, else where the question is asked."
    )
    evidence_sequences = serializers.ListField(
        child=IntegerField(min_value=0, max_value=SEQUENCE_MAX),
        required=False,
        max_length=EVIDENCE_MOST,
        help_text="Of the turns that say the answer.",
    )


class ProbeInput(ProbePatch):
    """A new probe."""

    question = WordsField(max_length=QUESTION_MAX_CHARS, error_messages=BLANK)
    expected = WordsField(max_length=EXPECTED_MAX_CHARS, error_messages=BLANK)
    session_id = PublicIdField(
        required=False, help_text="Where it is asked; left out: in the session that the person was in last."
    )


class ProbeAnswer(serializers.ModelSerializer[Probe]):
    """A question, the answer expected, and whether the context had it last."""

    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    evidence_session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)
    run_at = serializers.DateTimeField(default=None, allow_null=True, help_text="When it was asked last.")
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


class ProbeList(PageAnswer):
    """A page of probes."""

    probes = ProbeAnswer(many=True)


class ProbeResultAnswer(serializers.ModelSerializer[ProbeResult]):
    """What of an answer stood in the context."""

    probe_id = serializers.UUIDField(source="probe.probe_id")
    refs = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()), help_text="What stood in the context, by layer."
    )
    setup = serializers.DictField(help_text="The prompts' versions in force, and settings that matter.")

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


class ProbeResultList(PageAnswer):
    """A page of what came of a probe."""

    results = ProbeResultAnswer(many=True)


class RunInput(PersonQuery):
    """Which probes are asked."""

    session_id = PublicIdField(required=False, help_text="Those that are asked in this session; left out: all.")


class ProbePersonView(PersonView):
    """A call about a person's probes."""

    def probes(self) -> ProbeQuerySet:
        """Return the person's probes."""
        return Probe.objects.for_user(self.person).select_related("session", "source_session").with_latest()

    def probe(self, probe_id: uuid.UUID) -> Probe:
        """Return the person's probe; one that isn't there and somebody else's are answered alike."""
        return one_or_404(self.probes(), probe_id=probe_id)

    def session(self, name: str) -> Session | None:
        """Return the session that a field of the body names; None where it names none."""
        return session_or_404(self.person, self.body[name]) if name in self.body else None


class ProbesView(ProbePersonView):
    """A person's probes."""

    @operation(ProbeList, query=ProbesQuery, operation_id="probes_list")
    def get(self) -> Response:
        """Probes of a person, newest first, each with what came of it last."""
        rows = self.filtered(self.probes(), session_id="session__session_id", is_met="was_met")
        return self.page(ProbeList, rows.newest_first())

    @operation(
        {201: ProbeAnswer, 200: ProbeAnswer},
        body=ProbeInput,
        refuses=[CannotProbe, TooManyProbes],
        operation_id="probes_create",
    )
    def post(self) -> Response:
        """Keeps one; answers 200 with the present one when the question is kept for that session."""
        session = self.session("session_id")
        draft = Draft(
            self.body["question"],
            self.body["expected"],
            session=session,
            source_session=self.session("evidence_session_id") or session,
            evidence=self.body.get("evidence_sequences", ()),
        )
        probe, is_new = keep_probe(self.found_person, draft, created_by=self.actor)
        if is_new:
            count_values(draft.question, draft.expected)
        return created(ProbeAnswer(self.probe(probe.probe_id)), is_new=is_new)


class ProbeView(ProbePersonView):
    """One probe."""

    @operation(ProbeAnswer, query=PersonQuery, operation_id="probes_get")
    def get(self, probe_id: uuid.UUID) -> Response:
        """The probe, with what came of it last."""
        return Response(ProbeAnswer(self.probe(probe_id)).data)

    @operation(ProbeAnswer, body=ProbePatch, refuses=[CannotProbe], operation_id="probes_update")
    def patch(self, probe_id: uuid.UUID) -> Response:
        """Changes the answer expected, or the evidence."""
        probe = self.probe(probe_id)
        draft = Draft(
            probe.question,
            self.body.get("expected", probe.expected),
            source_session=self.session("evidence_session_id") or probe.source_session or probe.session,
            evidence=self.body.get("evidence_sequences", probe.evidence_sequences),
        )
        change_probe(probe, draft)
        probe.save()
        count_values(draft.expected)
        return Response(ProbeAnswer(self.probe(probe_id)).data)

    @operation(
        {204: OpenApiResponse(description="Deleted.")},
        query=PersonQuery,
        operation_id="probes_delete",
    )
    def delete(self, probe_id: uuid.UUID) -> Response:
        """Deletes it with what came of it."""
        self.probe(probe_id).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


class ProbeResultsView(ProbePersonView):
    """What came of a probe."""

    @operation(ProbeResultList, query=PageQuery)
    def get(self, probe_id: uuid.UUID) -> Response:
        """Each time that it was asked, newest first."""
        results = ProbeResult.objects.for_user(self.person).filter(probe=self.probe(probe_id))
        return self.page(ProbeResultList, results.select_related("probe").newest_first())


class RunProbesView(ProbePersonView):
    """A run of probes."""

    @operation({202: Accepted}, body=RunInput, operation_id="probes_run")
    def post(self) -> Response:
        """Asks a person's probes, in a job: no model is called, and the context alone is looked at.

        The job's `result` says how many were met; `run_id` of the results is its `job_id`.
        """
        person, session = self.found_person, self.session("session_id")
        return accepted(
            Job.objects.request(RunProbes.name, session, user_id=person.pk, requested_by=self.actor, force=True)
        )
