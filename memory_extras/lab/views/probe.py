"""The page of a probe, and the actions that create a probe from a turn and run probes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from memory_extras.lab.models import Probe, ProbeResult
from memory_extras.lab.models.probe import EXPECTED_MAX_CHARS, QUESTION_MAX_CHARS, ProbeResultQuerySet
from memory_extras.lab.probes.keep import Draft, draft_from, keep_probe
from memory_extras.lab.probes.report import changes, points
from memory_extras.lab.probes.run import RunProbes
from memory_extras.lab.rights import KEEP_PROBES
from memoryproject.status.dashboard import Chart, bar_chart
from moments_app.models import Job
from moments_app.operator.addresses import SESSIONS, Pages, Source, name_of_source
from moments_app.operator.rights import SEE_MEMORY
from moments_app.operator.views.session import SessionPage
from moments_app.provenance.retract import CannotRetract, sequences_of
from sessions_app.admin.links import change_url, turn_url
from sessions_app.admin.views import FormPage, RowAction
from sessions_app.refusals import Refusal

RESULTS_SHOWN = 50


@dataclass(frozen=True)
class ShownResult:
    """A result for the page.

    Args:
        sources: The items of the context.
        changes: What changed since the previous result.
    """

    result: ProbeResult
    sources: list[Source]
    changes: list[str]


def chart_of(results: ProbeResultQuerySet) -> dict[str, Any]:
    """Return the results over time, as a chart with a table."""
    found = points(results)
    asked, met = sum(point.asked for point in found), sum(point.met for point in found)
    bars = [(f"{point.day:%d %b}", round(point.share, 1)) for point in found]
    whole = f"{met} of {asked}"
    charts = [bar_chart("Met, %", whole, bars, is_whole=True, most=100)] if found else []
    return {"charts": charts, "points": found[::-1]}


class ProbeForm(FormPage[Probe]):
    """The page of a probe, with all its results."""

    after = "operator/probes/results.html"

    def context(self) -> dict[str, Any]:
        probe = self.row
        latest = list(probe.results.newest_first()[: RESULTS_SHOWN + 1])
        return {
            "probe": probe,
            "results": self._shown(latest)[:RESULTS_SHOWN],
            "charts": [_words_chart(latest[:RESULTS_SHOWN])] if latest else [],
            "evidence": self._evidence(),
            "may_run": self.admin.has_change_permission(self.request, probe),
        }

    def _shown(self, latest: Sequence[ProbeResult]) -> list[ShownResult]:
        named = [ref for result in latest for refs in result.refs.values() for ref in refs]
        pages = Pages(self.row.user, named) if self.request.user.has_perms(SEE_MEMORY) else None
        setups = [*(result.setup for result in latest[1:]), {}]
        return [
            ShownResult(result, _sources(result, pages), changes(before, result.setup))
            for result, before in zip(latest, setups, strict=False)
        ]

    def _evidence(self) -> list[Source]:
        session = self.row.source_session
        if session is None:
            return []
        turns = f"{SESSIONS}{session.session_id}/messages/"
        return [Source(f"{turns}{n}", f"turn {n}", turn_url(session.pk, n)) for n in self.row.evidence_sequences]


def _sources(result: ProbeResult, pages: Pages | None) -> list[Source]:
    refs = dict.fromkeys(ref for refs in result.refs.values() for ref in refs)
    return [pages.source(ref) if pages else Source(ref, name_of_source(ref)) for ref in refs]


def _words_chart(latest: Sequence[ProbeResult]) -> Chart:
    shares = [(one, 100 * one.words_found / one.words_count if one.words_count else 0.0) for one in latest[::-1]]
    bars = [(f"{result.created_at:%d %b}", round(share, 1)) for result, share in shares]
    met = sum(result.is_met for result in latest)
    return bar_chart("Words of the answer, %", f"met {met} of {len(latest)} times", bars, is_whole=True, most=100)


class RunPersonsProbes(RowAction[Probe]):
    """Runs all probes of a probe's person."""

    route, name = "<int:pk>/run/", "run"

    def change(self, probe: Probe) -> str:
        job = ask_of(probe.user_id, self.actor)
        self.log(probe, "Queued a run.", f"The probes of {probe.user} are queued as job {job.job_id}.")
        return change_url(probe)


@transaction.atomic
def ask_of(user_pk: int, actor: str) -> Job:
    """Queue a run of a person's probes."""
    return Job.objects.request(RunProbes.name, user_id=user_pk, requested_by=actor, force=True)


# --- from a transcript ---


class DraftForm(forms.Form):
    """A probe in the operator's words."""

    question = forms.CharField(max_length=QUESTION_MAX_CHARS)
    expected = forms.CharField(label="Expected answer", max_length=EXPECTED_MAX_CHARS)
    evidence = forms.CharField(max_length=1_000, required=False)
    anywhere = forms.BooleanField(required=False)

    def clean_evidence(self) -> list[int]:
        """Parse the sequences of turns."""
        text: str = self.cleaned_data["evidence"].strip()
        try:
            return sequences_of(text) if text else []
        except CannotRetract as error:
            raise forms.ValidationError(str(error)) from error


class KeepProbe(SessionPage):
    """Saves a turn and its answer as a probe. The operator can edit both first."""

    route, name, needs = "<int:pk>/probe/", "probe", (KEEP_PROBES, *SEE_MEMORY)
    template_name = "operator/sessions/probe.html"

    def context(self) -> dict[str, Any]:
        turn = self.number("turn")
        draft = draft_from(self.row, self.row.last_sequence if turn is None else turn)
        form = DraftForm(self.request.POST) if self.request.method == "POST" else DraftForm(_initial(draft))
        return super().context() | {"form": form, "turn": turn, "is_new": self.request.method != "POST"}

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = DraftForm(request.POST)
        if not form.is_valid():
            return self.page(status=400)
        try:
            probe, is_new = self._kept(form.cleaned_data)
        except Refusal as error:
            return self.page(status=error.status, problem=str(error))
        if is_new:
            self.log(self.row, f"Saved as probe {probe.probe_id}.", "Probe saved. The next run checks it.")
        else:
            messages.info(request, "question: this person already has a probe with this question.")
        return HttpResponseRedirect(change_url(probe))

    @transaction.atomic
    def _kept(self, written: dict[str, Any]) -> tuple[Probe, bool]:
        session, turn = self.row, self.number("turn")
        suggested = draft_from(session, turn) if turn is not None else None
        draft = Draft(
            written["question"],
            written["expected"],
            session=None if written["anywhere"] else session,
            source_session=session,
            evidence=written["evidence"],
            made_from=suggested.made_from if suggested else (),
        )
        return keep_probe(session.user, draft, created_by=self.actor)


def _initial(draft: Draft | None) -> dict[str, Any]:
    if draft is None:
        return {}
    return {
        "question": draft.question,
        "expected": draft.expected,
        "evidence": ",".join(map(str, draft.evidence)),
    }
