"""The list of probes, the page of a probe, and the actions that create a probe from a turn and run probes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from unfold.decorators import display

from memory_extras.lab.models import (
    ADD_PROBES,
    EXPECTED_MAX_CHARS,
    QUESTION_MAX_CHARS,
    Probe,
    ProbeResult,
    ProbeResultQuerySet,
)
from memory_extras.lab.probes.report import changes, points
from memory_extras.lab.probes.run import RunProbes
from memory_extras.lab.probes.save import Draft, draft_from, save_probe
from memoryproject.status.dashboard import Chart, bar_chart
from moments_app.models import Job
from moments_app.operator.addresses import SESSIONS, Pages, Source, name_of_source
from moments_app.operator.person_pages import SEE_MEMORY
from moments_app.operator.transcript import TURN_LINKS, TurnLink
from moments_app.operator.views.session import SessionPage
from moments_app.provenance.retract import CannotRetract, sequences_of
from sessions_app.admin.base import PageAdmin, UserFilter, add_views, time_cell
from sessions_app.admin.links import change_url, column, link_to, turn_url
from sessions_app.admin.views import FormPage, RowAction, actor_of, without_field
from sessions_app.models import Session
from sessions_app.models.event import named_actor
from sessions_app.refusals import Refusal

RESULTS_SHOWN = 50


@dataclass(frozen=True)
class ShownResult:
    """A result for the page, with the items of its context, and what changed since the previous result."""

    result: ProbeResult
    sources: list[Source]
    changes: list[str]


def chart_of(results: ProbeResultQuerySet) -> dict[str, Any]:
    found = points(results)
    asked, met = sum(point.asked for point in found), sum(point.met for point in found)
    bars = [(f"{point.day:%d %b}", round(point.share, 1)) for point in found]
    whole = f"{met} of {asked}"
    charts = [bar_chart("Met, %", whole, bars, is_whole=True, axis_max=100)] if found else []
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
    return bar_chart("Words of the answer, %", f"met {met} of {len(latest)} times", bars, is_whole=True, axis_max=100)


class RunPersonsProbes(RowAction[Probe]):
    """Runs all probes of a probe's person."""

    route, name = "<int:pk>/run/", "run"

    def change(self, probe: Probe) -> str:
        job = queue_probes(probe.user_id, self.actor)
        self.log(probe, "Queued a run.", f"The probes of {probe.user} are queued as job {job.job_id}.")
        return change_url(probe)


@transaction.atomic
def queue_probes(user_pk: int, actor: str) -> Job:
    return Job.objects.request(RunProbes.name, user_id=user_pk, requested_by=actor, force=True)


MET = {True: ("met", "Met"), False: ("missed", "Missed"), None: ("none", "Not run yet")}


class MetFilter(admin.SimpleListFilter):
    title = "last result"
    parameter_name = "met"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("1", "Met"), ("0", "Missed"), ("none", "Not run yet")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        wanted = {"1": True, "0": False, "none": None}
        chosen = self.value()
        return queryset.filter(was_met=wanted[chosen]) if chosen in wanted else queryset


@admin.register(Probe)
class ProbeAdmin(PageAdmin):
    """Questions whose answers memory should find. Operators create them from a transcript, and applications by REST."""

    list_display = ("question", "user_link", "session_link", "state", "asked_at", "by")
    by = column("created_by", "Created by", named_actor, ordering="created_by")
    asked_at = column("run_at", "When", time_cell)
    list_filter = (MetFilter, UserFilter)
    list_select_related = ("user", "session")
    sortable_by = ()
    open_lookups = ("user__id__exact", "session__id__exact")
    ordering = ("-id",)
    list_before_template = "operator/probes/over_time.html"
    when_empty = "No probes yet. To create one, press “save as probe” next to a turn of a transcript."
    may_add = False  # probes are created from a transcript, which has the evidence
    actions = ("run_selected",)
    form_page = ProbeForm
    views = (RunPersonsProbes,)
    fields = ("question", "expected", ("user_link", "session_link"), ("by", "created_at", "probe_id"))
    readonly_fields = ("question", "user_link", "session_link", "by", "created_at", "probe_id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Probe]:
        queryset: Any = super().get_queryset(request)
        probes: QuerySet[Probe] = queryset.with_latest()
        return probes

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the results over time, of all probes or of the person that the list is filtered by."""
        results = ProbeResult.objects.all()
        if user_id := request.GET.get(UserFilter.parameter_name, "").replace("\0", "").strip():
            results = results.filter(user__user_id=user_id)
        return chart_of(results)

    def has_run_permission(self, request: HttpRequest) -> bool:
        return bool(self.has_change_permission(request))

    @admin.action(description="Run all probes of these people", permissions=["run"])
    def run_selected(self, request: HttpRequest, queryset: QuerySet[Probe]) -> None:
        """Queue a run of each person's probes."""
        people = list(queryset.order_by("user_id").values_list("user_id", flat=True).distinct())
        for user_pk in people:
            queue_probes(user_pk, actor_of(request))
        self.message_user(request, f"The probes of {len(people)} people are queued.")

    @admin.display(description="Session")
    def session_link(self, probe: Probe) -> SafeString | str:
        return link_to(probe.session) if probe.session else "the latest session"

    @display(  # type: ignore[untyped-decorator]
        description="Last result", label={"met": "success", "missed": "danger"}
    )
    def state(self, probe: Any) -> tuple[str, str]:
        return MET[probe.was_met]


# --- from a transcript ---


class DraftForm(forms.Form):
    question = forms.CharField(max_length=QUESTION_MAX_CHARS)
    expected = forms.CharField(label="Expected answer", max_length=EXPECTED_MAX_CHARS)
    evidence = forms.CharField(max_length=1_000, required=False)
    anywhere = forms.BooleanField(required=False)

    def clean_evidence(self) -> list[int]:
        text: str = self.cleaned_data["evidence"].strip()
        try:
            return sequences_of(text) if text else []
        except CannotRetract as error:
            raise forms.ValidationError(without_field(error)) from error


class SaveProbe(SessionPage):
    """Saves a turn and its answer as a probe. The operator can edit both first."""

    route, name, needs = "<int:pk>/probe/", "probe", (ADD_PROBES, *SEE_MEMORY)
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
            return self.page(status=error.status, problem=without_field(error))
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
        return save_probe(session.user, draft, created_by=self.actor)


def _initial(draft: Draft | None) -> dict[str, Any]:
    if draft is None:
        return {}
    return {
        "question": draft.question,
        "expected": draft.expected,
        "evidence": ",".join(map(str, draft.evidence)),
    }


add_views(Session, SaveProbe)
TURN_LINKS.append(TurnLink("save as probe", "Save turn {} as probe", "admin:sessions_app_session_probe", ADD_PROBES))
