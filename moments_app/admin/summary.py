"""Rolling summaries and their chain."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from moments_app.models import Summary
from sessions_app.admin.base import ReadOnlyAdmin, prefix_search


class InTheMaking(admin.SimpleListFilter):
    """Versions that nobody is working on."""

    title = "stuck"
    parameter_name = "stuck"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Begun long ago, no job")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Summary]) -> QuerySet[Summary]:
        return queryset.filter(pk__in=Summary.objects.stuck()) if self.value() == "yes" else queryset


@admin.register(Summary)
class SummaryAdmin(ReadOnlyAdmin):
    """Versions of rolling summaries: what they cover, what they carry on, how long they took."""

    list_display = ("id", "session", "user", "status", "window", "base", "sources", "generation_time_ms", "created_at")
    list_filter = ("status", InTheMaking)
    list_select_related = ("session", "user", "base__session")
    search_fields = ("session__session_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("text", "facts")}),
        (
            "Where it comes from",
            {
                "fields": (
                    ("session", "user", "status"),
                    ("start_sequence", "end_sequence", "base"),
                    ("engine", "prompt_version", "job"),
                    ("generation_time_ms", "created_at", "completed_at"),
                    ("source_message_ids", "error"),
                )
            },
        ),
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Summary], search_term: str
    ) -> tuple[QuerySet[Summary], bool]:
        return prefix_search(queryset, search_term, "session__session_id", "user__user_id"), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in ("session__id__exact", "user__id__exact") or super().lookup_allowed(lookup, value, request)

    @admin.display(description="Window")
    def window(self, summary: Summary) -> str:
        return f"{summary.start_sequence}–{summary.end_sequence}"

    @admin.display(description="Sources")
    def sources(self, summary: Summary) -> int:
        return len(summary.source_message_ids)
