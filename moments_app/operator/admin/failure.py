"""The lists and pages of failures, grouped by cause, and of circuits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, F, QuerySet, Sum
from django.http import HttpRequest
from django.template.defaultfilters import pluralize
from django.utils.html import format_html
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from moments_app.jobs.runner import RETRY_BATCH, retry_all, retry_one
from moments_app.models import Circuit, EngineCall, FailureGroup, Job
from moments_app.models.engine_call import STRIP_HOURS
from moments_app.operator.person_pages import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.reports.incidents import Incident, incidents_of
from moments_app.reports.overview import lane_states, provider_states
from sessions_app.admin.base import ReadOnlyAdmin, time_cell
from sessions_app.admin.links import change_url, column, list_url
from sessions_app.admin.views import FormPage, RowAction, may_see
from sessions_app.models import Session

SHOWN = 20  # maximum number of jobs, and of calls, on the page
SHARED = 5  # maximum number of people, and of prompt versions, to list; most failures first
BAR = 480  # width of the chart in SVG units
CHANGE_CIRCUIT = "moments_app.change_circuit"
RETRY_WARNING = f"Up to {RETRY_BATCH} failed jobs of this incident are queued again, and waiting jobs become due now."
# Appended to the warning for operators who may change circuits.
PROBE_WARNING = " If the circuit of their engine is open, one job tries the engine."
# For each process, a description of its unprocessed turns, and the counter of processed turns.
UNPROCESSED = {
    "build_moments": ("turns without a moment", "built_message_count"),
    "form_memories": ("turns not searched for facts", "formed_message_count"),
}
STATES = {"unfinished": "danger", "resolved": "success", "muted": "warning"}
HELD_SHOWN = 20


@dataclass(frozen=True)
class Hour:
    """An hour of the chart. `x` is the position of its bar in SVG units, `height` is in percent."""

    at: datetime
    count: int
    x: float
    height: float

    @property
    def top(self) -> float:
        return 100 - self.height


@dataclass(frozen=True)
class ShownIncident:
    """An incident on the page of one of its failures."""

    incident: Incident
    failure: FailureGroup

    @property
    def others(self) -> list[FailureGroup]:
        return [each for each in self.incident.failures if each != self.failure]

    @property
    def retry_button(self) -> str:
        jobs = self.incident.by_failure.total()
        return f"Retry {jobs:,} job{pluralize(jobs)}" if jobs else ""


def strip_of(hours: Sequence[tuple[datetime, int]]) -> list[Hour]:
    most, width = max((count for _, count in hours), default=0) or 1, BAR / STRIP_HOURS
    return [Hour(at, count, number * width, 100 * count / most) for number, (at, count) in enumerate(hours)]


class FailureForm(FormPage[FailureGroup]):
    """The page of a failure: its incidents, calls and unfinished jobs."""

    before = "operator/failures/failure.html"

    def context(self) -> dict[str, Any]:
        failure = self.row
        stalled = self.visible(Job.objects.stalled().filter(failure=failure))
        circuits = list(self.visible(Circuit.objects.open()))
        strip = strip_of(failure.by_hour())
        return {
            "failure": failure,
            "incidents": [ShownIncident(each, failure) for each in incidents_of(failure, circuits)],
            "may_change": self.admin.has_steer_permission(self.request),
            "may_read": self.request.user.has_perms((PREVIEW_CONTEXT, *SEE_MEMORY)),
            "bar": BAR,
            "bar_width": BAR / STRIP_HOURS - 1,
            "strip": strip,
            "hours": [hour for hour in reversed(strip) if hour.count],
            "retry_warning": RETRY_WARNING + (PROBE_WARNING if self.request.user.has_perm(CHANGE_CIRCUIT) else ""),
            "jobs": stalled.select_related("user", "session__user", "stream").order_by("-id")[:SHOWN],
            "people": self._people(stalled),
            "unprocessed": self._unprocessed(stalled),
            "calls": self._calls().select_related("exchange", "prompt_version__resource").order_by("-id")[:SHOWN],
            "versions": self._versions(),
        }

    def _calls(self) -> Any:
        return self.visible(EngineCall.objects.filter(failure=self.row))

    def _people(self, stalled: Any) -> dict[str, Any]:
        of_people = stalled.filter(user__isnull=False).values("user", "user__user_id").order_by()
        most = of_people.annotate(jobs=Count("pk")).order_by("-jobs", "user")[: SHARED + 1]
        return {"most": list(most)[:SHARED], "are_more": len(most) > SHARED}

    def _versions(self) -> Any:
        calls = self._calls().exclude(prompt_version=None).order_by()
        named = calls.values("prompt_version__number", "prompt_version__resource__name")
        return named.annotate(calls=Count("pk")).order_by("-calls")[:SHARED]

    def _unprocessed(self, stalled: Any) -> str:
        """Return a description of the turns not processed because of the failure. Blank if these aren't counted."""
        if self.row.process not in UNPROCESSED:
            return ""
        words, processed = UNPROCESSED[self.row.process]
        rows = stalled.filter(session__isnull=False).order_by().values("session").distinct()
        sessions = self.visible(Session.objects.filter(pk__in=rows))
        found = sessions.aggregate(turns=Sum(F("message_count") - F(processed)), sessions=Count("pk"))
        return f"{found['turns'] or 0:,} {words} in {found['sessions']:,} sessions" if found["sessions"] else ""


class IncidentAction(RowAction[FailureGroup]):
    """A change of a failure's incident, for operators who may change jobs."""

    permission = "steer"

    def change(self, failure: FailureGroup) -> str:
        incidents = incidents_of(failure, list(self.visible(Circuit.objects.open())))  # keys depend on the circuits
        incident = next((each for each in incidents if each.key == self.request.POST.get("incident")), None)
        if incident is None:
            messages.error(self.request, "This incident is over, so nothing was changed.")
            return change_url(failure)
        return self.change_incident(failure, incident)

    def change_incident(self, failure: FailureGroup, incident: Incident) -> str:
        """Change the incident. Return the URL to redirect to."""
        raise NotImplementedError


class TryFailure(IncidentAction):
    """Run one of the jobs again, to test whether the cause is gone."""

    route, name = "<int:pk>/try/", "try"

    def change_incident(self, failure: FailureGroup, incident: Incident) -> str:
        job = retry_one(incident.stalled())
        if job is None:
            messages.error(
                self.request,
                "None of these jobs can be retried now. They are running already, or they are retried automatically.",
            )
            return change_url(failure)
        self.log(failure, f"Tried one: {job}.", f"{job} runs now. Reload its page to see how it ends.")
        return change_url(job)


class RetryFailure(IncidentAction):
    """Run all jobs of the incident again."""

    route, name = "<int:pk>/retry/", "retry"

    def change_incident(self, failure: FailureGroup, incident: Incident) -> str:
        circuits = incident.circuits if self.request.user.has_perm(CHANGE_CIRCUIT) else ()
        retried = retry_all(incident.stalled(), circuits, actor=self.actor)
        self.log(failure, f"Retried: {retried}.", f"{incident.cause}: {retried}.")
        return change_url(failure)


class MuteFailure(IncidentAction):
    """Mute the incident: list it after all others."""

    route, name = "<int:pk>/mute/", "mute"

    def change_incident(self, failure: FailureGroup, incident: Incident) -> str:
        for each in incident.failures:
            each.mute(incident.key, actor=self.actor)
        entry = f"Muted: {incident.cause}."
        self.log(failure, entry, f"{entry} The dashboard lists it last until its jobs are done.")
        return change_url(failure)


class UnmuteFailure(IncidentAction):
    """Show the incident as usual again."""

    route, name = "<int:pk>/unmute/", "unmute"

    def change_incident(self, failure: FailureGroup, incident: Incident) -> str:
        for each in incident.failures:
            each.unmute(incident.key)
        self.log(failure, f"Unmuted: {incident.cause}.", f"No longer muted: {incident.cause}.")
        return change_url(failure)


class MutedFilter(admin.SimpleListFilter):
    title = parameter_name = "muted"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("0", "Not muted"), ("1", "Muted")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "0":
            return queryset.filter(muted_causes=[])
        return queryset.exclude(muted_causes=[]) if self.value() == "1" else queryset


@admin.register(FailureGroup)
class FailureGroupAdmin(ReadOnlyAdmin):
    """Failures, grouped by cause: how often, since when, and the unfinished jobs."""

    list_display = ("failure", "state", "stalled_jobs", "times", "last_error", "seen_last", "seen_first")
    list_filter = (MutedFilter,)
    sortable_by = ()
    ordering = ("-last_seen_at", "-id")
    paginator = InfinitePaginator
    list_before_template = "operator/failures/list.html"
    views = (TryFailure, RetryFailure, MuteFailure, UnmuteFailure)
    form_page = FailureForm
    shows_personal_data = False
    when_empty = "Nothing has failed. Failed calls and jobs are grouped here by cause."
    steer_permission = "moments_app.change_job"
    stalled_jobs = column("stalled", "Unfinished jobs", "{:,}".format)
    times = column("count", "Count", "{:,}".format)
    seen_last = column("last_seen_at", "Last seen", time_cell)
    seen_first = column("first_seen_at", "First seen", time_cell)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).with_stalled()  # type: ignore[no-any-return]

    def get_fieldsets(self, request: HttpRequest, obj: FailureGroup | None = None) -> list[Any]:
        return []  # the page doesn't use Django's fields

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        sees_providers = may_see(request, Circuit)  # providers are global, while failures belong to applications
        return {
            "sees_providers": sees_providers,
            "lanes": lane_states(),
            "providers": provider_states() if sees_providers else [],
            "may_change": request.user.has_perm(CHANGE_CIRCUIT),
        }

    @admin.display(description="Failure")
    def failure(self, failure: FailureGroup) -> str:
        return f"{failure} · {failure.engine}" if failure.engine else str(failure)

    @display(description="State", label=STATES)  # type: ignore[untyped-decorator]
    def state(self, failure: Any) -> str:
        return "muted" if failure.muted_causes else "unfinished" if failure.stalled else "resolved"

    @admin.display(description="Last error")
    def last_error(self, failure: FailureGroup) -> str:
        return format_html('<span class="rem-op-why">{}</span>', failure.error)


class CircuitForm(FormPage[Circuit]):
    """The page of a circuit, with the jobs that wait for the engine."""

    before = "operator/circuits/circuit.html"

    def context(self) -> dict[str, Any]:
        held = Job.objects.held().filter(circuit=self.row)
        count = held.count()
        shown = self.visible(held.select_related("user", "session__user", "stream"))
        return {
            "circuit": self.row,
            "may_change": self.admin.has_steer_permission(self.request),
            "held": shown.order_by("id")[:HELD_SHOWN],
            "held_count": count,
            "close_warning": f"The engine is called as usual again. Held jobs that become due: {count:,}.",
        }


class TryCircuit(RowAction[Circuit]):
    """Send the next probe of a circuit now."""

    route, name, permission = "<path:pk>/try/", "try", "steer"

    def change(self, circuit: Circuit) -> str:
        do = partial(circuit.try_now, self.actor)
        message = f"The next free worker or query tests {circuit}."
        self.attempt(circuit, do, log="Tried.", message=message)
        return change_url(circuit)


class CloseCircuit(RowAction[Circuit]):
    """Close a circuit. All held jobs become due."""

    route, name, permission = "<path:pk>/close/", "close", "steer"

    def change(self, circuit: Circuit) -> str:
        do = partial(circuit.close_by_hand, self.actor)
        self.attempt(circuit, do, log="Closed.", message=f"{circuit} is closed.")
        return change_url(circuit)


@admin.register(Circuit)
class CircuitAdmin(ReadOnlyAdmin):
    """Circuits, open ones first. Operators can send a probe or close a circuit."""

    list_display = ("engine", "work", "state_label", "since_when", "last_error", "held_jobs", "failed_at", "probe_at")
    sortable_by = ()
    ordering = ("-state", "engine", "work")
    actions = ("try_now", "close")
    views = (TryCircuit, CloseCircuit)
    form_page = CircuitForm
    when_empty = "No circuits yet. A model or endpoint appears here when it fails for the first time."
    fieldsets = ((None, {"fields": (("engine", "work"),)}),)
    try_now = TryCircuit.for_selected("Try selected circuits now")
    close = CloseCircuit.for_selected(
        "Close selected circuits",
        button="Close these circuits",
        warning="Their engines are called as usual again, and all held jobs become due.",
    )
    state_label = column("state", "State", label={"closed": "success", "open": "danger"})
    since_when = column("since", "Since", time_cell)
    failed_at = column("last_failure_at", "Last failure", time_cell)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).with_held()  # type: ignore[no-any-return]

    @admin.display(description="Last error")
    def last_error(self, circuit: Circuit) -> str:
        return format_html('<span class="rem-op-cell">{}</span>', circuit.error or "–")

    @admin.display(description="Held jobs")
    def held_jobs(self, circuit: Any) -> str:
        if not circuit.held:
            return "0"
        url = list_url(Job, circuit__id__exact=circuit.pk, state="held")
        return format_html('<a class="rem-link" href="{}">{}</a>', url, circuit.held)

    @admin.display(description="Next test call")
    def probe_at(self, circuit: Circuit) -> str:
        return time_cell(circuit.next_probe_at if circuit.is_open else None)
