"""Archives, to see what went where."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app.admin.base import ReadOnlyAdmin, prefix_search
from sessions_app.models import Archive


@admin.register(Archive)
class ArchiveAdmin(ReadOnlyAdmin):
    """A session's turns of one month, in one file."""

    list_display = ("name", "session", "user", "month", "first_sequence", "last_sequence", "turn_count", "byte_count")
    list_select_related = ("session", "user")
    search_fields = ("session__session_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Archive], search_term: str
    ) -> tuple[QuerySet[Archive], bool]:
        return prefix_search(queryset, search_term, "session__session_id", "user__user_id"), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "session__id__exact" or super().lookup_allowed(lookup, value, request)
