"""The pages of a fact or observation: its sources, its changes, and all items that say the same thing.

Also the facts about a person at a given time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import label_for_field
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import pluralize
from django.utils import timezone
from django.utils.text import capfirst

from moments_app.models import Correction, MemoryAtom, MemoryStream, Release, Retraction, StatementChange
from moments_app.operator.addresses import Pages, name_of_source
from moments_app.operator.diff import DiffPart, word_diff
from moments_app.operator.person_pages import SEE_MEMORY, may_retract_directly
from moments_app.operator.transcript import entries
from moments_app.operator.views.person import PersonPage
from moments_app.provenance.correct import (
    CannotCorrect,
    CorrectionRequest,
    correct,
    end_request,
    matching_texts,
    preview,
    replacement_request,
    withdrawal_request,
)
from moments_app.provenance.rewording import TextChange, as_one_text
from moments_app.streams import edit
from moments_app.streams.texts import is_in_line
from sessions_app.admin.base import name_of, with_key_names
from sessions_app.admin.links import change_url
from sessions_app.admin.views import FormPage, RowAction, RowPage, first_of, may_see, without_field
from sessions_app.models import Message

FACTS_SHOWN = 200  # facts per page
TARGETS = 100  # maximum streams to choose from
SOURCES = 50  # maximum source turns
CHANGES = 50  # maximum number of changes in the history
SEE_FACTS = ("moments_app.view_memoryatom",)
KINDS = {
    "fact": "Facts and observations",
    "moment": "Moments",
    "summary": "Summaries of sessions",
    "event": "Digests of sessions",
    "stream": "Memory texts",
    "turn": "Turns (marked, but not changed)",
}


class MoveForm(forms.Form):
    """The target of a move: another stream of the same person, or for a shard's item, another shard."""

    stream = forms.ModelChoiceField(MemoryStream.objects.none())

    def __init__(self, atom: MemoryAtom, data: Any = None) -> None:
        super().__init__(data)
        streams = MemoryStream.objects.filter(user=atom.user_id).exclude(pk=atom.stream_id)
        self.fields["stream"].queryset = streams  # type: ignore[attr-defined]
        self._streams = streams.select_related("user", "session").order_by("-stream_type", "-last_updated_at", "-pk")

    def targets(self) -> list[MemoryStream]:
        """Return the streams to choose from: first the person's own, then those of sessions, latest first."""
        return list(self._streams[:TARGETS])


class AtomForm(FormPage[MemoryAtom]):
    """The page of an item: its sources, its history, and the actions on it."""

    before, after = "operator/facts/fact.html", "operator/facts/source.html"

    def context(self) -> dict[str, Any]:
        atom, may_change = self.row, self.admin.has_change_permission(self.request)
        may_move = self.admin.has_change_permission(self.request, atom)
        turns, is_released = self._source_turns(), hasattr(atom, "release")
        return {
            "show_save_and_add_another": False,
            "atom": atom,
            "written_by": name_of(self.request, atom.written_by),
            "may_move": may_move,
            "eviction_warning": _eviction_warning(atom),
            "may_evict": may_move or (may_change and not is_released and _is_line_or_no_longer_in_text(atom)),
            "may_correct": _may_be_corrected(atom) and may_change and self.request.user.has_perms(SEE_MEMORY),
            "may_search": atom.user_id and not atom.is_candidate and self.request.user.has_perms(SEE_MEMORY),
            "may_retract": self._may_retract(),
            "may_restore": atom.state == MemoryAtom.State.EVICTED and may_change and not is_released,
            "targets": MoveForm(atom).targets() if may_move else [],
            "history": self._history(),
            "calls": self.visible(atom.job.engine_calls.all()) if atom.job else (),
            "sees_turns": may_see(self.request, Message),
            "entries": entries(self.request, turns[:SOURCES]),
            "last_turn": turns[-1] if turns else None,
            "missing": len(atom.source_message_ids) - len(turns),
        }

    def _may_retract(self) -> bool:
        """Return whether the operator may retract the item. Only directly written items can be retracted."""
        is_derived = self.row.engine or self.row.source_message_ids or hasattr(self.row, "release")
        return not is_derived and may_retract_directly(self.request)

    def _history(self) -> list[tuple[StatementChange, Correction | Retraction | None, str, list[tuple[str, Any]]]]:
        """Return the changes, each with the correction or retraction that made it, its URL, and the former values."""
        changes = with_key_names(self.request, self.visible(self.row.history.newest_first()), "actor")[:CHANGES]
        reasons = [change.reason.partition(":") for change in changes]
        ids = {uid for kind, _, uid in reasons if kind in ("correction", "retraction")}
        corrections = self.visible(Correction.objects.filter(correction_id__in=ids))
        retractions = self.visible(Retraction.objects.filter(retraction_id__in=ids))
        made_by = {row.reason: row for row in corrections} | {row.actor: row for row in retractions}
        found = ((change, made_by.get(change.reason)) for change in changes)
        return [(change, row, change_url(row) if row else "", _former_values(change)) for change, row in found]

    def _source_turns(self) -> list[Message]:
        turns = Message.objects.filter(pk__in=self.row.source_message_ids).select_related("session").in_order()
        return list(self.visible(turns))


def _former_values(change: StatementChange) -> list[tuple[str, Any]]:
    """Return the labels of the changed columns, with the values before the change."""
    shown = {True: "yes", False: "no"}
    return [
        (capfirst(str(label_for_field(name, MemoryAtom))), shown.get(value, value))
        for name, value in change.shown.items()
    ]


class EvictAtom(RowAction[MemoryAtom]):
    """Remove an item from memory."""

    route, name = "<int:pk>/evict/", "evict"

    def change(self, atom: MemoryAtom) -> str:
        done = "Removed from memory."
        message = f"{done} Contexts and searches no longer include it."
        self.attempt(atom, partial(edit.evict, atom, requested_by=self.actor), log=done, message=message)
        return change_url(atom)


class RestoreAtom(RowAction[MemoryAtom]):
    """Restore an item to memory."""

    route, name = "<int:pk>/restore/", "restore"

    def change(self, atom: MemoryAtom) -> str:
        restore = partial(edit.restore, atom, requested_by=self.actor)
        self.attempt(atom, restore, log="Restored.", message="Restored. Contexts and searches include it again.")
        return change_url(atom)


class MoveAtom(RowAction[MemoryAtom]):
    """Move an item to another stream."""

    route, name = "<int:pk>/move/", "move"

    def change(self, atom: MemoryAtom) -> str:
        form = MoveForm(atom, self.request.POST)
        if not form.is_valid():
            messages.error(self.request, "Choose another memory text of the same person.")
            return change_url(atom)
        stream = form.cleaned_data["stream"]
        log = f"Moved from the {atom.stream.title} to the {stream.title}."
        move = partial(edit.move, atom, stream, requested_by=self.actor)
        self.attempt(atom, move, log=log, message=f"Moved to the {stream.title}.")
        return change_url(atom)


def _may_be_corrected(atom: MemoryAtom) -> bool:
    is_of_person = atom.user_id is not None and not atom.is_candidate
    return is_of_person and atom.state != MemoryAtom.State.EVICTED and not atom.is_wrong


def _eviction_warning(atom: MemoryAtom) -> str:
    """Return a warning that others still see releases of the item; blank if there are none."""
    shared = Release.objects.in_effect().made_from([atom]).count()
    if not shared:
        return ""
    rest = f"{shared} released item{pluralize(shared)} {pluralize(shared, 'is,are')} based on it."
    return f"{rest} Other people still see the released text until you revoke the release."


def _is_line_or_no_longer_in_text(atom: MemoryAtom) -> bool:
    """Return whether the item is a line of a text, or was merged into a text that no longer contains it."""
    is_absorbed = atom.state == MemoryAtom.State.ABSORBED
    return atom.state == MemoryAtom.State.LINE or (is_absorbed and not is_in_line(atom))


# --- correcting and ending ---


class FactChangeForm(forms.Form):
    """What to do with a fact: correct, end or withdraw it."""

    do = forms.ChoiceField(choices=[(kind, kind) for kind in Correction.Kind.values])
    content = forms.CharField(max_length=4_000, required=False)
    valid_until = forms.DateField(required=False)

    def clean(self) -> dict[str, Any]:
        """Require the new text of a correction."""
        values: dict[str, Any] = super().clean() or {}
        if values.get("do") == Correction.Kind.CORRECTED and not values.get("content"):
            self.add_error("content", "Enter the correct text.")
        return values

    def order(self) -> CorrectionRequest:
        values = self.cleaned_data
        if values["do"] == Correction.Kind.CORRECTED:
            return replacement_request(values["content"])
        if values["do"] == Correction.Kind.WITHDRAWN:
            return withdrawal_request()
        day = values["valid_until"]
        return end_request(min(datetime.combine(day, time.min, tzinfo=UTC), timezone.now()) if day else None)


@dataclass(frozen=True)
class ShownChange:
    """A text that says the same thing as a fact, with its changes marked. `url` is blank if the source has no page."""

    ref: str
    field: str
    parts: Sequence[DiffPart]
    url: str = ""

    @property
    def name(self) -> str:
        return name_of_source(self.ref)

    @property
    def words(self) -> list[str]:
        """The words that the change removes."""
        return [part.text for part in self.parts if part.change == "removed"]


def changes_by_kind(changes: Sequence[TextChange], pages: Pages | None = None) -> list[tuple[str, list[ShownChange]]]:
    """Group changes by kind, under the title of the kind. With `pages`, add the URLs of the changed texts."""
    kinds = [(title, [_shown(one, pages) for one in changes if one.kind == kind]) for kind, title in KINDS.items()]
    return [(title, found) for title, found in kinds if found]


def _shown(change: TextChange, pages: Pages | None) -> ShownChange:
    parts = word_diff(as_one_text(change.before), as_one_text(change.after))
    field = capfirst(change.field.replace("_", " "))
    return ShownChange(change.ref, field, parts, pages.of(change.ref) if pages else "")


class MatchingItems(RowPage[MemoryAtom]):
    """Everything that says the same thing as a fact: other facts, moments, summaries, memory texts, and turns."""

    route, name, needs = "<int:pk>/elsewhere/", "elsewhere", SEE_MEMORY
    template_name = "operator/facts/elsewhere.html"

    def get_title(self) -> str:
        return "Matching items"

    def context(self) -> dict[str, Any]:
        fact = self.row
        try:
            changes = matching_texts(fact)
        except CannotCorrect as error:
            return {"atom": fact, "problem": without_field(error)}
        assert fact.user is not None  # `matching_texts` raises an error for a fact without a user
        return {
            "atom": fact,
            "kinds": changes_by_kind(changes, Pages(fact.user, {change.ref for change in changes})),
            "may_correct": self.admin.has_change_permission(self.request),
        }


class CorrectFact(RowPage[MemoryAtom]):
    """Correct or end a fact. Show everything that says the same thing, and confirm all changes at once."""

    route, name, permission, needs = "<int:pk>/correct/", "correct", "change", SEE_MEMORY
    template_name = "operator/facts/correct.html"

    def get_title(self) -> str:
        return "Correct or end a fact"

    def context(self) -> dict[str, Any]:
        given = self.request.POST if self.request.method == "POST" else self.request.GET
        form = FactChangeForm(given) if "do" in given else FactChangeForm()
        return {"atom": self.row, "form": form} | self._previewed(form)

    def _previewed(self, form: FactChangeForm) -> dict[str, Any]:
        if not form.is_bound or not form.is_valid():
            return {}
        try:
            changes = preview(self.row, form.order())
        except CannotCorrect as error:
            return {"problem": without_field(error)}
        return {"kinds": changes_by_kind(changes), "count": len(changes)}

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = FactChangeForm(request.POST)
        if not form.is_valid():
            return self.page()
        leave = set(request.POST.getlist("ref")) - set(request.POST.getlist("with"))
        try:
            correction = correct(self.row, form.order(), requested_by=self.actor, leave=leave)
        except CannotCorrect as error:
            messages.error(request, without_field(error))
            return HttpResponseRedirect(change_url(self.row))
        message = f"{capfirst(correction.kind)}, together with all matching items."
        self.log(self.row, f"Correction {correction.correction_id}.", message)
        return HttpResponseRedirect(change_url(correction))


# --- a person's facts ---


class PersonFacts(PersonPage):
    """Facts about a person that are valid now, or were known to be valid at a time."""

    route, name, tab, needs = "<int:pk>/facts/", "facts", "Facts over time", SEE_FACTS
    template_name = "operator/facts/person.html"

    def context(self) -> dict[str, Any]:
        time = self.as_of.time
        facts = MemoryAtom.objects.statements_of(self.row).select_related("replaced_by", "stream", "user")
        facts = facts.as_of(time) if time else facts.exclude(is_wrong=True)
        if last := MemoryAtom.objects.filter(user=self.row, pk=self.number("after") or 0).first():
            facts = facts.older_than(last)
        found, after = first_of(facts.defer("search_vector").newest_first(), FACTS_SHOWN)
        return super().context() | {"facts": found, "after": after}
