"""The list of rolling summaries."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from moments_app.models import Summary
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.views.summary import RetrySummary, SummaryForm
from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.admin.links import link_to, titled

STUCK = "stuck"


class StatusFilter(admin.SimpleListFilter):
    """Summaries with a status. Stuck ones are in progress without a running job."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*Summary.Status.choices, (STUCK, "Stuck (no job is working on it)")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Summary]) -> QuerySet[Summary]:
        if self.value() == STUCK:
            return queryset.filter(pk__in=Summary.objects.stuck())
        return queryset.filter(status=self.value()) if self.value() in Summary.Status.values else queryset


@admin.register(Summary)
class SummaryAdmin(ReadOnlyAdmin):
    """Versions of rolling summaries: their turns, their previous version, and their duration."""

    list_display = ("told", "status_badge", "session_link", "user_link", "base_link", "sources", "took", "created_at")
    applications = ("user__application",)
    list_filter = (StatusFilter, UserFilter)
    list_filter_submit = True
    paginator = InfinitePaginator
    search_fields = search_prefixes = ("session__session_id", "user__user_id")
    open_lookups = ("session__id__exact", "user__id__exact")
    search_help_text = "Start of a session_id or user_id"
    ordering = ("-id",)
    when_empty = "No summaries yet. A job writes the first summary of a session after an answer."
    form_page = SummaryForm
    views = (RetrySummary,)

    class Media:
        js = ("operator/walk.js",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Summary]:
        named: QuerySet[Summary] = super().get_queryset(request)
        return named.select_related("session", "user", "job", "prompt_version__resource", "base")

    def get_fieldsets(self, request: HttpRequest, obj: Summary | None = None) -> list[Any]:
        return []  # the page doesn't use Django's fields

    @admin.display(description="Turns", ordering="end_sequence")
    def told(self, summary: Summary) -> SafeString:
        return titled(self.window(summary), summary.text)

    @staticmethod
    def window(summary: Summary) -> str:
        """Return the range of turns that a summary covers."""
        return f"{summary.start_sequence}–{summary.end_sequence}"

    @admin.display(description="Status")
    def status_badge(self, summary: Summary) -> SafeString:
        return format_html(
            '<span class="rem-badge rem-badge-{}">{}</span>', summary.status, summary.get_status_display().lower()
        )

    @admin.display(description="Session")
    def session_link(self, summary: Summary) -> SafeString | str:
        return link_to(summary.session)

    @admin.display(description="User")
    def user_link(self, summary: Summary) -> SafeString | str:
        return link_to(summary.user)

    @admin.display(description="Continues")
    def base_link(self, summary: Summary) -> SafeString | str:
        return link_to(summary.base, self.window(summary.base)) if summary.base else "–"

    @admin.display(description="Sources")
    def sources(self, summary: Summary) -> int:
        return len(summary.source_message_ids)

    @admin.display(description="Duration")
    def took(self, summary: Summary) -> SafeString | str:
        milliseconds = summary.generation_time_ms
        return "–" if milliseconds is None else format_html('<span class="rem-nowrap">{} ms</span>', milliseconds)
