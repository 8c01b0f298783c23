"""A person's facts at a time; and correcting or ending a fact together with matching items."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.text import capfirst

from moments_app.models import Contradiction, Correction, MemoryAtom
from moments_app.operator.addresses import Pages, name_of_source
from moments_app.operator.diff import DiffPart, word_diff
from moments_app.operator.rights import SEE_MEMORY
from moments_app.operator.views.person import PersonPage
from moments_app.provenance.correct import (
    CannotCorrect,
    CorrectionRequest,
    correct,
    correcting,
    ending,
    matching_texts,
    preview,
    undo_correction,
    withdrawing,
)
from moments_app.provenance.rewording import TextChange, as_one_text
from moments_app.streams.timeline import decide
from sessions_app.admin.links import change_url
from sessions_app.admin.views import FormPage, RowAction, RowPage, first_of

SHOWN = 200  # facts per page
SEE_FACTS = ("moments_app.view_memoryatom",)
KINDS = {
    "fact": "Facts and observations",
    "moment": "Moments",
    "summary": "Summaries of sessions",
    "event": "Digests of sessions",
    "stream": "Memory texts",
    "turn": "Turns (marked, but not changed)",
}


class PersonFacts(PersonPage):
    """Facts about a person that are valid now, or were known to be valid at a time."""

    route, name, tab, needs = "<int:pk>/facts/", "facts", "Facts over time", SEE_FACTS
    template_name = "operator/facts/person.html"

    def context(self) -> dict[str, Any]:
        time = self.as_of.time
        facts = MemoryAtom.objects.statements_of(self.row).select_related("replaced_by", "stream", "user")
        facts = facts.as_of(time) if time else facts.exclude(is_wrong=True)
        if last := MemoryAtom.objects.filter(user=self.row, pk=self.number("after") or 0).first():
            facts = facts.said_before(last)
        found, after = first_of(facts.defer("search_vector").newest_first(), SHOWN)
        return super().context() | {"facts": found, "after": after}


class OrderForm(forms.Form):
    do = forms.ChoiceField(choices=[(kind, kind) for kind in Correction.Kind.values])
    content = forms.CharField(max_length=4_000, required=False)
    valid_until = forms.DateField(required=False)

    def clean(self) -> dict[str, Any]:
        """Require the new text of a correction."""
        values: dict[str, Any] = super().clean() or {}
        if values.get("do") == Correction.Kind.CORRECTED and not values.get("content"):
            self.add_error("content", "content: enter the correct text.")
        return values

    def order(self) -> CorrectionRequest:
        values = self.cleaned_data
        if values["do"] == Correction.Kind.CORRECTED:
            return correcting(values["content"])
        if values["do"] == Correction.Kind.WITHDRAWN:
            return withdrawing()
        day = values["valid_until"]
        return ending(min(datetime.combine(day, time.min, tzinfo=UTC), timezone.now()) if day else None)


@dataclass(frozen=True)
class ShownChange:
    """A matching text, with its changes marked."""

    ref: str
    field: str
    parts: Sequence[DiffPart]

    @property
    def name(self) -> str:
        return name_of_source(self.ref)


@dataclass(frozen=True)
class ShownKind:
    title: str
    changes: list[ShownChange]


def shown_changes(changes: Sequence[TextChange]) -> list[ShownKind]:
    kinds = [ShownKind(title, [_shown(one) for one in changes if one.kind == kind]) for kind, title in KINDS.items()]
    return [kind for kind in kinds if kind.changes]


def _shown(change: TextChange) -> ShownChange:
    parts = word_diff(as_one_text(change.before), as_one_text(change.after))
    return ShownChange(change.ref, capfirst(change.field.replace("_", " ")), parts)


@dataclass(frozen=True)
class Saying:
    """A text that says the same thing as a fact.

    Args:
        place: the part of the source that contains the text, such as the summary.
        name: the name of the source.
        url: the page of the source; blank if it has no page.
        words: the matching words.
    """

    place: str
    name: str
    url: str
    words: list[str]


class SaidElsewhere(RowPage[MemoryAtom]):
    """Everything that says the same thing as a fact: other facts, moments, summaries, texts of streams, and turns."""

    route, name, needs = "<int:pk>/elsewhere/", "elsewhere", SEE_MEMORY
    template_name = "operator/facts/elsewhere.html"

    def get_title(self) -> str:
        return "Matching items"

    def context(self) -> dict[str, Any]:
        fact = self.row
        try:
            kinds = shown_changes(matching_texts(fact))
        except CannotCorrect as error:
            return {"atom": fact, "problem": str(error)}
        assert fact.user is not None  # `matching_texts` raises an error for a fact without a user
        pages = Pages(fact.user, {change.ref for kind in kinds for change in kind.changes})
        return {
            "atom": fact,
            "kinds": [(kind.title, [_saying(change, pages) for change in kind.changes]) for kind in kinds],
            "may_correct": self.admin.has_change_permission(self.request),
        }


def _saying(change: ShownChange, pages: Pages) -> Saying:
    words = [part.text for part in change.parts if part.change == "removed"]
    return Saying(change.field, change.name, pages.of(change.ref), words)


class CorrectFact(RowPage[MemoryAtom]):
    """Correct or end a fact. Show everything that says the same thing, and confirm all changes at once."""

    route, name, permission, needs = "<int:pk>/correct/", "correct", "change", SEE_MEMORY
    template_name = "operator/facts/correct.html"

    def get_title(self) -> str:
        return "Correct or end a fact"

    def context(self) -> dict[str, Any]:
        given = self.request.POST if self.request.method == "POST" else self.request.GET
        form = OrderForm(given) if "do" in given else OrderForm()
        return {"atom": self.row, "form": form} | self._previewed(form)

    def _previewed(self, form: OrderForm) -> dict[str, Any]:
        if not form.is_bound or not form.is_valid():
            return {}
        try:
            changes = preview(self.row, form.order())
        except CannotCorrect as error:
            return {"problem": str(error)}
        return {"kinds": shown_changes(changes), "count": len(changes)}

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = OrderForm(request.POST)
        if not form.is_valid():
            return self.page()
        leave = set(request.POST.getlist("ref")) - set(request.POST.getlist("with"))
        try:
            made = correct(self.row, form.order(), requested_by=self.actor, leave=leave)
        except CannotCorrect as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(change_url(self.row))
        self.log(
            self.row, f"Correction {made.correction_id}.", f"{capfirst(made.kind)}, together with all matching items."
        )
        return HttpResponseRedirect(change_url(made))


class CorrectionForm(FormPage[Correction]):
    """The page of a correction: its changes."""

    after = "operator/facts/correction.html"

    def context(self) -> dict[str, Any]:
        sees = self.request.user.has_perms(SEE_MEMORY)
        changes = [TextChange(**{name: kept[name] for name in TextChange.__match_args__}) for kept in self.row.changes]
        return {
            "correction": self.row,
            "kinds": shown_changes(changes) if sees else [],
            "sees_changes": sees,
            "may_undo": self.admin.has_steer_permission(self.request) and self.row.undone_at is None,
        }


class UndoCorrection(RowAction[Correction]):
    """Undo a correction, or explain why that is not possible."""

    route, name, permission = "<int:pk>/undo/", "undo", "steer"

    def change(self, correction: Correction) -> str:
        undo = partial(undo_correction, correction, requested_by=self.actor)
        self.attempt(correction, undo, log="Undone.", message="The correction is undone, and all items are as before.")
        return change_url(correction)


class ContradictionForm(FormPage[Contradiction]):
    """Two facts, of which one may have ended the other, and the answer."""

    before = "operator/facts/contradiction.html"

    def context(self) -> dict[str, Any]:
        question = self.row
        facts = MemoryAtom.objects.filter(pk__in=[question.earlier_id, question.later_id]).order_by("formed_at", "pk")
        return {
            "question": question,
            "both": self.seen(facts.select_related("stream", "user")),
            "may_answer": self.admin.has_steer_permission(self.request),
        }


class Answer(RowAction[Contradiction]):
    """An answer to the question whether one fact ended another."""

    permission = "steer"
    decision, told = "", ""

    def change(self, question: Contradiction) -> str:
        answer = partial(decide, question, self.decision, requested_by=self.actor)
        self.attempt(question, answer, log=self.told, message=self.told)
        return change_url(question)


class AcceptContradiction(Answer):
    """Answer that the earlier fact ended."""

    route, name = "<int:pk>/accept/", "accept"
    decision, told = Contradiction.Decision.ACCEPTED, "The earlier fact has ended."


class DeclineContradiction(Answer):
    """Answer that both facts are true."""

    route, name = "<int:pk>/decline/", "decline"
    decision, told = Contradiction.Decision.DECLINED, "Both facts are true."


class UndoAnswer(Answer):
    """Remove the answer."""

    route, name = "<int:pk>/take-back/", "take_back"
    decision, told = "", "The answer was undone. Both facts count as true until an operator answers again."
