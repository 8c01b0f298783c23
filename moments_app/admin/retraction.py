"""Retractions: what was withdrawn and why, undoing them, and the page on which one is made."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from moments_app.models import Retraction
from moments_app.processes.retract import CannotRetract, preview, sequences_of
from moments_app.processes.undo_retraction import undo_retraction
from sessions_app.admin.base import ReadOnlyAdmin, prefix_search
from sessions_app.models import Session

ITEMS_SHOWN = 500


class RetractionForm(forms.Form):
    """Which turns, and why."""

    sequences = forms.CharField(max_length=10_000, required=False)
    reason = forms.CharField(max_length=2_000)

    def clean_sequences(self) -> list[int] | None:
        """Those named; None: all the session has."""
        text: str = self.cleaned_data["sequences"].strip()
        try:
            return sequences_of(text) if text else None
        except CannotRetract as error:
            raise forms.ValidationError(str(error)) from error


def previewed(form: RetractionForm, session: Session) -> dict[str, Any]:
    """What the page shows of a valid form: what would be withdrawn, or why nothing can be."""
    try:
        return {"preview": preview(session, form.cleaned_data["sequences"])}
    except CannotRetract as error:
        return {"problem": str(error)}


@admin.register(Retraction)
class RetractionAdmin(ReadOnlyAdmin):
    """What is no longer believed, newest first."""

    list_display = ("created_at", "session", "user", "reason", "requested_by", "undone_at")
    list_select_related = ("session", "user")
    list_filter = (("undone_at", admin.EmptyFieldListFilter),)
    search_fields = ("session__session_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-id",)
    actions = ("undo",)
    change_form_outer_after_template = "admin/retracted_items.html"
    fields = (
        ("session", "user", "sequences"),
        "reason",
        ("requested_by", "created_at", "undone_at", "retraction_id"),
        "result",
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Retraction], search_term: str
    ) -> tuple[QuerySet[Retraction], bool]:
        return prefix_search(queryset, search_term, "session__session_id", "user__user_id"), False

    def around(self, request: HttpRequest, obj: Retraction) -> dict[str, Any]:
        """The rows that were withdrawn or rewritten."""
        kinds = obj.items.values_list("model", "is_rewritten").annotate(number=Count("id")).order_by("model")
        return {"retraction": obj, "kinds": kinds, "items": obj.items.order_by("model", "object_pk")[:ITEMS_SHOWN]}

    def has_undo_permission(self, request: HttpRequest) -> bool:
        """Whoever may change retractions."""
        return request.user.has_perm("moments_app.change_retraction")

    @admin.action(description="Undo the selected retractions", permissions=["undo"])
    def undo(self, request: HttpRequest, queryset: QuerySet[Retraction]) -> None:
        """The newest first; says which can't be undone, and why."""
        for retraction in queryset.order_by("-id"):
            try:
                undo_retraction(retraction, requested_by=f"operator:{request.user}")
            except CannotRetract as error:
                messages.error(request, f"{retraction}: {error}")
            else:
                self.log_change(request, retraction, "Undone.")
                messages.success(request, f"{retraction} is undone.")
