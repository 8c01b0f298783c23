"""The list of probes, with their expected answers, and their results over time."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from memory_extras.lab.models import Probe, ProbeResult
from memory_extras.lab.views.probe import ProbeForm, RunPersonsProbes, ask_of, chart_of
from sessions_app.admin.base import PageAdmin, UserFilter, time_cell
from sessions_app.admin.links import column, link_to
from sessions_app.admin.views import actor_of
from sessions_app.models.event import named_actor

MET = {True: ("met", "Met"), False: ("missed", "Missed"), None: ("none", "Not run yet")}


class MetFilter(admin.SimpleListFilter):
    """Filters probes by their latest result."""

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
        """Allow running probes with the permission to change them."""
        return bool(self.has_change_permission(request))

    @admin.action(description="Run all probes of these people", permissions=["run"])
    def run_selected(self, request: HttpRequest, queryset: QuerySet[Probe]) -> None:
        """Queue a run of each person's probes."""
        people = list(queryset.order_by("user_id").values_list("user_id", flat=True).distinct())
        for user_pk in people:
            ask_of(user_pk, actor_of(request))
        self.message_user(request, f"The probes of {len(people)} people are queued.")

    @admin.display(description="Session")
    def session_link(self, probe: Probe) -> SafeString | str:
        return link_to(probe.session) if probe.session else "the latest session"

    @display(  # type: ignore[untyped-decorator]
        description="Last result", label={"met": "success", "missed": "danger"}
    )
    def state(self, probe: Any) -> tuple[str, str]:
        return MET[probe.was_met]
