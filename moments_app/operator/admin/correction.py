"""The lists of corrections, contradictions and retractions, and the pages of the first two."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.core.cache import cache
from django.http import HttpRequest

from moments_app.models import Contradiction, Correction, MemoryAtom, Retraction
from moments_app.operator.person_pages import SEE_MEMORY
from moments_app.operator.views.fact import changes_by_kind
from moments_app.operator.views.retraction import CheckRetraction, RetractionForm, UndoRetraction
from moments_app.provenance.correct import undo_correction
from moments_app.provenance.rewording import TextChange
from moments_app.streams.timeline import decide
from sessions_app.admin.base import ReadOnlyAdmin, RequestedAdmin
from sessions_app.admin.links import change_url, column
from sessions_app.admin.views import FormPage, RowAction
from sessions_app.limited_operators import scope_key
from sessions_app.models.event import named_actor

COUNTED, CACHE_SECONDS = 100, 30  # maximum questions to count, and seconds to cache their number


class CorrectionForm(FormPage[Correction]):
    """The page of a correction: its changes."""

    after = "operator/facts/correction.html"

    def context(self) -> dict[str, Any]:
        sees = self.request.user.has_perms(SEE_MEMORY)
        changes = [
            TextChange(**{name: stored[name] for name in TextChange.__match_args__}) for stored in self.row.changes
        ]
        return {
            "correction": self.row,
            "kinds": changes_by_kind(changes) if sees else [],
            "sees_changes": sees,
            "may_undo": self.admin.has_steer_permission(self.request) and self.row.undone_at is None,
        }


class UndoCorrection(RowAction[Correction]):
    """Undo a correction."""

    route, name, permission = "<int:pk>/undo/", "undo", "steer"

    def change(self, correction: Correction) -> str:
        undo = partial(undo_correction, correction, requested_by=self.actor)
        self.attempt(correction, undo, log="Undone.", message="The correction is undone, and all items are as before.")
        return change_url(correction)


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


class ContradictionForm(FormPage[Contradiction]):
    """The page of a contradiction: the two facts, and the answer."""

    before = "operator/facts/contradiction.html"

    def context(self) -> dict[str, Any]:
        question = self.row
        facts = MemoryAtom.objects.filter(pk__in=[question.earlier_id, question.later_id]).order_by("formed_at", "pk")
        return {
            "question": question,
            "both": self.visible(facts.select_related("stream", "user")),
            "may_answer": self.admin.has_steer_permission(self.request),
        }


class ContradictionAnswer(RowAction[Contradiction]):
    """An answer to the question whether one fact ended another."""

    permission = "steer"
    decision, message = "", ""

    def change(self, question: Contradiction) -> str:
        answer = partial(decide, question, self.decision, requested_by=self.actor)
        self.attempt(question, answer, log=self.message, message=self.message)
        return change_url(question)


class AcceptContradiction(ContradictionAnswer):
    """Answer that the earlier fact ended."""

    route, name = "<int:pk>/accept/", "accept"
    decision, message = Contradiction.Decision.ACCEPTED, "The earlier fact has ended."


class DeclineContradiction(ContradictionAnswer):
    """Answer that both facts are true."""

    route, name = "<int:pk>/decline/", "decline"
    decision, message = Contradiction.Decision.DECLINED, "Both facts are true."


class UndoAnswer(ContradictionAnswer):
    """Remove the answer."""

    route, name = "<int:pk>/take-back/", "take_back"
    decision, message = "", "The answer was undone. Both facts count as true until an operator answers again."


@admin.register(Contradiction)
class ContradictionAdmin(ReadOnlyAdmin):
    """Questions about whether one fact ended another, newest first."""

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


def pending_count(request: HttpRequest) -> str:
    """Return the number of open questions for the sidebar. Blank if there are none."""

    def count() -> int:
        return Contradiction.objects.waiting()[: COUNTED + 1].count()

    number: int = cache.get_or_set(f"contradictions-waiting{scope_key()}", count, CACHE_SECONDS) or 0
    return f"{COUNTED}+" if number > COUNTED else str(number or "")


@admin.register(Retraction)
class RetractionAdmin(RequestedAdmin):
    """Retractions, newest first."""

    list_display = ("created_at", "session", "owner", "reason", "by", "undone_at")
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
    fields = (("session", "owner"), "turns", "reason", ("by", "created_at", "undone_at", "retraction_id"))

    @admin.display(description="Turns")
    def turns(self, retraction: Retraction) -> str:
        if retraction.sequences is None:
            return "all" if retraction.session_id else "–"
        return ", ".join(map(str, retraction.sequences))

    @admin.display(description="User", ordering="user")
    def owner(self, retraction: Retraction) -> str:
        return str(retraction.user or retraction.stream)
