"""Archives in the admin."""

from django.contrib import admin

from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.models import Archive


@admin.register(Archive)
class ArchiveAdmin(ReadOnlyAdmin):
    """The archived turns of one session and month, stored in a file."""

    list_display = ("name", "session", "user", "month", "turns", "turn_count", "byte_count")
    tells_of_people = False
    applications = ("user__application",)
    list_select_related = ("session", "user")
    search_fields = search_prefixes = ("session__session_id", "user__user_id")
    open_lookups = ("session__id__exact",)
    search_help_text = "Start of a session_id or user_id"
    ordering = ("-id",)
    when_empty = "No archives yet. Retention archives turns that are past their retention period."

    @admin.display(description="Turns")
    def turns(self, archive: Archive) -> str:
        return f"{archive.first_sequence}–{archive.last_sequence}"
