"""The list of retractions: what was withdrawn, and why."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from moments_app.models import Retraction
from moments_app.operator.views.retraction import RetractionForm, UndoRetraction
from sessions_app.admin.base import ReadOnlyAdmin


@admin.register(Retraction)
class RetractionAdmin(ReadOnlyAdmin):
    """Retractions, newest first."""

    list_display = ("created_at", "session", "user", "reason", "requested_by", "undone_at")
    list_select_related = ("session", "user")
    applications = ("user__application",)
    list_filter = (("undone_at", admin.EmptyFieldListFilter),)
    search_fields = search_prefixes = ("session__session_id", "user__user_id")
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-id",)
    actions = ("undo_selected",)
    form_page = RetractionForm
    views = (UndoRetraction,)
    fields = (
        ("session", "user", "sequences", "item_ids"),
        "reason",
        ("requested_by", "created_at", "undone_at", "retraction_id"),
    )

    def has_undo_permission(self, request: HttpRequest) -> bool:
        """Let whoever may change retractions undo them."""
        return request.user.has_perm("moments_app.change_retraction")

    @admin.action(description="Undo the selected retractions", permissions=["undo"])
    def undo_selected(self, request: HttpRequest, queryset: QuerySet[Retraction]) -> None:
        """Undo the newest first; say which can't be undone, and why."""
        UndoRetraction.change_each(self, request, queryset.order_by("-id"))
