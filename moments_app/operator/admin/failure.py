"""The list of failures, grouped by cause, below the state of the providers and lanes; and the list of circuits.

Circuits show which engines are not called, since when, why, and what waits for them.
"""

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from moments_app.models import Circuit, FailureGroup, Job
from moments_app.operator.views.failure import FailureForm, MuteFailure, RetryFailure, TryFailure, UnmuteFailure
from moments_app.reports.waiting import lane_states, provider_states
from sessions_app.admin.ask_first import asks_first
from sessions_app.admin.base import ReadOnlyAdmin, one_line
from sessions_app.admin.links import change_url, list_url
from sessions_app.admin.views.base import FormPage, RowAction, may_see

STATES = {"unfinished": "danger", "resolved": "success", "muted": "warning"}
HELD_SHOWN = 20


class MutedFilter(admin.SimpleListFilter):
    """Muted failures, or the others."""

    title = "muted"
    parameter_name = "muted"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("0", "Not muted"), ("1", "Muted")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "0":
            return queryset.filter(muted_causes=[])
        return queryset.exclude(muted_causes=[]) if self.value() == "1" else queryset


@admin.register(FailureGroup)
class FailureGroupAdmin(ReadOnlyAdmin):
    """Failures, grouped by cause: how often, since when, and the unfinished jobs."""

    list_display = ("what", "state", "stalled_jobs", "times", "last_error", "seen_last", "seen_first")
    list_filter = (MutedFilter,)
    sortable_by = ()
    ordering = ("-last_seen_at", "-id")
    paginator = InfinitePaginator
    list_before_template = "operator/failures/list.html"
    views = (TryFailure, RetryFailure, MuteFailure, UnmuteFailure)
    form_page = FailureForm
    tells_of_people = False
    when_empty = "Nothing has failed. Failed calls and jobs are grouped here by cause."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).with_stalled()  # type: ignore[no-any-return]

    def get_fieldsets(self, request: HttpRequest, obj: FailureGroup | None = None) -> list[Any]:
        return []  # the page doesn't use Django's fields

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may change jobs to retry and mute. Rows can't be edited."""
        return request.user.has_perm("moments_app.change_job")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Add the state of providers and lanes to the list."""
        sees_providers = may_see(request, Circuit)  # they are global, while failures belong to people
        shown: dict[str, Any] = {"sees_providers": sees_providers, "lanes": lane_states()}
        shown["providers"] = provider_states() if sees_providers else []
        shown["may_change"] = request.user.has_perm("moments_app.change_circuit")
        response: HttpResponse = super().changelist_view(request, (extra_context or {}) | shown)
        return response

    @admin.display(description="Failure")
    def what(self, failure: FailureGroup) -> str:
        where = f" · {failure.engine}" if failure.engine else ""
        return f"{failure}{where}"

    @display(description="State", label=STATES)  # type: ignore[untyped-decorator]
    def state(self, failure: Any) -> str:
        return "muted" if failure.muted_causes else "unfinished" if failure.stalled else "resolved"

    @admin.display(description="Unfinished jobs")
    def stalled_jobs(self, failure: Any) -> str:
        return f"{failure.stalled:,}"

    @admin.display(description="Count")
    def times(self, failure: FailureGroup) -> str:
        return f"{failure.count:,}"

    @admin.display(description="Last error")
    def last_error(self, failure: FailureGroup) -> str:
        return format_html('<span class="rem-op-why">{}</span>', failure.error)

    @admin.display(description="Last seen")
    def seen_last(self, failure: FailureGroup) -> str:
        return one_line(failure.last_seen_at)

    @admin.display(description="First seen")
    def seen_first(self, failure: FailureGroup) -> str:
        return one_line(failure.first_seen_at)


class CircuitForm(FormPage[Circuit]):
    """The page of a circuit: whether the engine is called, why not, and what waits for it."""

    before = "operator/circuits/circuit.html"

    def context(self) -> dict[str, Any]:
        held = Job.objects.held().filter(circuit=self.row)
        count = held.count()
        shown = self.seen(held.select_related("user", "session__user", "stream"))
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
        self.attempt(circuit, do, log="Tried.", message=message, about=str(circuit))
        return change_url(circuit)


class CloseCircuit(RowAction[Circuit]):
    """Close a circuit. All held jobs become due."""

    route, name, permission = "<path:pk>/close/", "close", "steer"

    def change(self, circuit: Circuit) -> str:
        do = partial(circuit.close_by_hand, self.actor)
        self.attempt(circuit, do, log="Closed.", message=f"{circuit} is closed.", about=str(circuit))
        return change_url(circuit)


@admin.register(Circuit)
class CircuitAdmin(ReadOnlyAdmin):
    """Circuits, open ones first. Operators can send a probe or close a circuit."""

    list_display = ("engine", "work", "how", "since_when", "why_open", "held_jobs", "failed_at", "tried_at")
    sortable_by = ()
    ordering = ("-state", "engine", "work")
    actions = ("try_now", "close")
    views = (TryCircuit, CloseCircuit)
    form_page = CircuitForm
    when_empty = "No circuits yet. A model or endpoint appears here when it fails for the first time."
    fieldsets = ((None, {"fields": (("engine", "work"),)}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).with_held()  # type: ignore[no-any-return]

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may change circuits to control them. Rows can't be edited."""
        return request.user.has_perm("moments_app.change_circuit")

    @admin.action(description="Try selected circuits now", permissions=["steer"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> None:
        """Send the next probe of each circuit now."""
        TryCircuit.change_each(self, request, queryset)

    @admin.action(description="Close selected circuits", permissions=["steer"])
    @asks_first(
        "Their engines are called as usual again, and all held jobs become due.",
        button="Close these circuits",
    )
    def close(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> None:
        """Make all jobs that the circuits hold due now."""
        CloseCircuit.change_each(self, request, queryset)

    @display(description="State", label={"closed": "success", "open": "danger"})  # type: ignore[untyped-decorator]
    def how(self, circuit: Circuit) -> str:
        return circuit.state

    @admin.display(description="Since")
    def since_when(self, circuit: Circuit) -> str:
        return one_line(circuit.since)

    @admin.display(description="Last error")
    def why_open(self, circuit: Circuit) -> str:
        return format_html('<span class="rem-op-cell">{}</span>', circuit.error or "–")

    @admin.display(description="Held jobs")
    def held_jobs(self, circuit: Any) -> str:
        if not circuit.held:
            return "0"
        url = list_url(Job, circuit__id__exact=circuit.pk, state="held")
        return format_html('<a class="rem-link" href="{}">{}</a>', url, circuit.held)

    @admin.display(description="Last failure")
    def failed_at(self, circuit: Circuit) -> str:
        return one_line(circuit.last_failure_at)

    @admin.display(description="Next test call")
    def tried_at(self, circuit: Circuit) -> str:
        return one_line(circuit.next_probe_at if circuit.is_open else None)
