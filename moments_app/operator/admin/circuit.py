"""Circuits: which engines are not called, since when, why, and what waits for them; and probing and closing one."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from moments_app.models import Circuit, Job
from sessions_app.admin.ask_first import asks_first
from sessions_app.admin.base import ReadOnlyAdmin, one_line
from sessions_app.admin.links import change_url, list_url
from sessions_app.admin.views.base import FormPage, RowAction

HELD_SHOWN = 20


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
