"""The list of failures, grouped by cause, below the state of the providers and lanes."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from moments_app.models import Circuit, FailureGroup
from moments_app.operator.views.failure import FailureForm, MuteFailure, RetryFailure, TryFailure, UnmuteFailure
from moments_app.reports.providers import lane_states, provider_states
from sessions_app.admin.base import ReadOnlyAdmin, one_line
from sessions_app.admin.views.base import may_see

STATES = {"unfinished": "danger", "resolved": "success", "muted": "warning"}


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
