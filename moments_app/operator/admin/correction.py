"""The lists of corrections, contradictions and retractions."""

from django.contrib import admin
from django.core.cache import cache
from django.http import HttpRequest

from moments_app.models import Contradiction, Correction, Retraction
from moments_app.operator.views.fact import (
    AcceptContradiction,
    ContradictionForm,
    CorrectionForm,
    DeclineContradiction,
    UndoAnswer,
    UndoCorrection,
)
from moments_app.operator.views.retraction import CheckRetraction, RetractionForm, UndoRetraction
from sessions_app.admin.base import ReadOnlyAdmin, RequestedAdmin
from sessions_app.admin.links import column
from sessions_app.limited_operators import scope_key
from sessions_app.models.event import named_actor

COUNTED, KEPT = 100, 30  # maximum number to count, and seconds to cache it


@admin.register(Correction)
class CorrectionAdmin(RequestedAdmin):
    """Corrections, newest first."""

    list_display = ("created_at", "kind", "before", "after", "user", "by", "undone_at")
    list_select_related = ("user",)
    list_filter = ("kind", ("undone_at", admin.EmptyFieldListFilter))
    when_empty = "No corrections yet. Each corrected, ended or withdrawn fact is listed here."
    ordering = ("-id",)
    form_page = CorrectionForm
    views = (UndoCorrection,)
    fields = (("user", "kind"), "before", "after", ("valid_until", "by"), ("created_at", "undone_at"))


@admin.register(Contradiction)
class ContradictionAdmin(ReadOnlyAdmin):
    """Questions whether one fact ended another, newest first."""

    list_display = ("created_at", "about", "user", "reason", "decision", "by")
    by = column("decided_by", "Decided by", named_actor, ordering="decided_by")
    list_select_related = ("user", "later")
    list_filter = (("decision", admin.EmptyFieldListFilter),)
    when_empty = "No contradictions. Facts that may contradict each other wait here for your decision."
    ordering = ("-id",)
    form_page = ContradictionForm
    views = (AcceptContradiction, DeclineContradiction, UndoAnswer)
    fields = (("user", "reason"), ("created_at", "decision"), ("by", "decided_at"))

    @admin.display(description="About")
    def about(self, question: Contradiction) -> str:
        return question.later.attribute or question.later.atom_type


def waiting(request: HttpRequest) -> str:
    """Return the number of open questions for the sidebar, or an empty string if there are none."""
    number: int = cache.get_or_set(f"contradictions-waiting{scope_key()}", _number_waiting, KEPT) or 0
    return f"{COUNTED}+" if number > COUNTED else str(number or "")


def _number_waiting() -> int:
    return Contradiction.objects.waiting()[: COUNTED + 1].count()


@admin.register(Retraction)
class RetractionAdmin(RequestedAdmin):
    """Retractions, newest first."""

    list_display = ("created_at", "session", "whose", "reason", "by", "undone_at")
    list_select_related = ("session", "user", "stream")
    list_filter = (("undone_at", admin.EmptyFieldListFilter),)
    ordering = ("-id",)
    when_empty = "No retractions yet. To retract turns, tick them in a session's transcript."
    actions = ("undo_selected",)
    form_page = RetractionForm
    views = (CheckRetraction, UndoRetraction)
    undo_selected = UndoRetraction.for_selected(
        "Undo selected retractions",
        button="Undo these retractions",
        warning="Memory uses the turns again. Contexts and searches include what was derived from them.",
    )
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
        return str(retraction.user or retraction.stream)
