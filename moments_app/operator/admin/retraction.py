"""The list of retractions: what was withdrawn, and why."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from moments_app.models import Retraction
from moments_app.operator.views.retraction import CheckRetraction, RetractionForm, UndoRetraction
from sessions_app.admin.actors import AskedForAdmin
from sessions_app.admin.ask_first import asks_first


@admin.register(Retraction)
class RetractionAdmin(AskedForAdmin):
    """Retractions, newest first."""

    list_display = ("created_at", "session", "whose", "reason", "by", "undone_at")
    list_select_related = ("session", "user", "stream")
    applications = ("user__application", "stream__application")
    list_filter = (("undone_at", admin.EmptyFieldListFilter),)
    search_fields = search_prefixes = ("session__session_id", "user__user_id")
    search_help_text = "Start of a session_id or user_id"
    ordering = ("-id",)
    when_empty = "No retractions yet. To retract turns, tick them in a session's transcript."
    actions = ("undo_selected",)
    form_page = RetractionForm
    views = (CheckRetraction, UndoRetraction)
    fields = (
        ("session", "whose"),
        "turns",
        "reason",
        ("by", "created_at", "undone_at", "retraction_id"),
    )

    @admin.display(description="Turns")
    def turns(self, retraction: Retraction) -> str:
        if retraction.sequences is None:
            return "all" if retraction.session_id else "–"
        return ", ".join(map(str, retraction.sequences))

    @admin.display(description="User", ordering="user")
    def whose(self, retraction: Retraction) -> str:
        """Return the person, or the shard whose users saw the item."""
        return str(retraction.user or retraction.stream)

    def has_undo_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may change retractions to undo them."""
        return request.user.has_perm("moments_app.change_retraction")

    @admin.action(description="Undo selected retractions", permissions=["undo"])
    @asks_first(
        "Memory uses the turns again. Contexts and searches include what was derived from them.",
        button="Undo these retractions",
    )
    def undo_selected(self, request: HttpRequest, queryset: QuerySet[Retraction]) -> None:
        """Undo the retractions, newest first. Report those that can't be undone, and why."""
        UndoRetraction.change_each(self, request, queryset.order_by("-id"))
