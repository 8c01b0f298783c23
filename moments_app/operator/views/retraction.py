"""The page of a retraction and its undo action; and the pages for retracting turns, items and entities."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import capfirst

from moments_app.models import Job, MemoryAtom, Moment, RetractedItem, Retraction, Summary
from moments_app.operator.addresses import Pages
from moments_app.operator.person_pages import PREVIEW_CONTEXT, RETRACT_DIRECTLY, SEE_MEMORY
from moments_app.operator.views.session import SessionPage
from moments_app.provenance.dependents import ItemDependents, TurnDependents
from moments_app.provenance.repeated import check_retraction
from moments_app.provenance.retract import CannotRetract, Preview, preview, retract, sequences_of
from moments_app.provenance.retract_items import ItemSelection, Owner, preview_items, retract_items
from moments_app.provenance.undo import undo_retraction
from sessions_app.admin.links import change_url, page_url, turn_url
from sessions_app.admin.views import FormPage, RowAction, RowPage, first_of, parse_number, without_field
from sessions_app.models import Event, Message, Session

ITEMS_SHOWN = 500
ROWS_SHOWN = 50  # rows of each kind in a preview
PREVIEW = "preview"  # the name of the button that only updates the preview

_Form = TypeVar("_Form", bound=forms.Form)


class TurnsForm(forms.Form):
    sequences = forms.CharField(max_length=10_000, required=False)

    def clean_sequences(self) -> list[int] | None:
        """Return the sequence numbers of the turns, or None for all turns of the session."""
        text: str = self.cleaned_data["sequences"].strip()
        try:
            return sequences_of(text) if text else None
        except CannotRetract as error:
            raise forms.ValidationError(without_field(error)) from error


class ReasonForm(TurnsForm):
    reason = forms.CharField(max_length=2_000)


def _form_of(request: HttpRequest) -> TurnsForm:
    """Read the turns: from the posted form, from a text in the URL, or from selected turns."""
    if request.method == "POST":
        return _with_reason(ReasonForm(request.POST), request)
    if "sequences" in request.GET:
        return TurnsForm(request.GET)
    selected = sorted({turn for turn in map(parse_number, request.GET.getlist("turn")) if turn is not None})
    return TurnsForm({"sequences": ",".join(map(str, selected))}) if selected else TurnsForm()


def _with_reason(form: _Form, request: HttpRequest) -> _Form:
    """Require a reason, unless the operator only updates the preview."""
    form.fields["reason"].required = PREVIEW not in request.POST
    return form


def _answers_to_leave(request: HttpRequest) -> set[str]:
    """Return the addresses of the answers whose checkboxes the operator has cleared."""
    return {*request.POST.getlist("shown_answer")} - {*request.POST.getlist("answer")}


@dataclass(frozen=True)
class Row:
    label: str
    url: str


@dataclass(frozen=True)
class Group:
    """The rows of one kind that would be withdrawn. `rows` contains the first of them."""

    title: str
    count: int
    rows: list[Row]

    @property
    def more(self) -> int:
        return self.count - len(self.rows)


def _preview(form: TurnsForm, session: Session, left: set[str]) -> dict[str, Any]:
    """Return the preview of a retraction, or the reason why it isn't possible. Empty while no turns are selected."""
    if not form.is_bound or (not form.is_valid() and "sequences" in form.errors):
        return {}
    try:
        found = preview(session, form.cleaned_data["sequences"], leave=left)
    except CannotRetract as error:
        return {"problem": without_field(error)}
    return {"preview": found, "groups": _groups(found.of_turns)}


def _groups(parts: Sequence[TurnDependents]) -> list[Group]:
    """Group the dependent rows of the sessions by kind, in the order in which they were derived."""
    groups = [
        _group("Moments", (found.moments for found in parts), _moment_row),
        _group("Summaries", (found.summaries for found in parts), _summary_row),
        *_groups_in_streams(parts),
        _group("Boundaries in the transcript", (found.events for found in parts), _event_row),
        _group("Rewritten, because they mention one of the moments", (found.mentions for found in parts), _mention_row),
        _group("Journeys that may include one of the moments", (found.journeys for found in parts), _moment_row),
    ]
    return [group for group in groups if group.count]


def _groups_in_streams(parts: Sequence[ItemDependents]) -> list[Group]:
    tables = [table for found in parts[:1] for table in found.others if admin.site.is_registered(table)]
    return [
        _group("Facts and observations", (found.atoms for found in parts), _row),
        _group("Lines of memory texts", (found.lines for found in parts), _row),
        *(_group(_title(table), (found.others[table] for found in parts), _row) for table in tables),
    ]


def _group(title: str, parts: Iterable[Sequence[Any]], row: Callable[[Any], Row]) -> Group:
    rows = list({one.pk: one for rows in parts for one in rows}.values())
    return Group(title, len(rows), [row(one) for one in rows[:ROWS_SHOWN]])


def _title(table: type[Model]) -> str:
    return capfirst(str(table._meta.verbose_name_plural))


def _moment_row(moment: Moment) -> Row:
    label = f"{moment.name}, turns {moment.first_sequence}–{moment.last_sequence}"
    return Row(label, change_url(moment))


def _summary_row(summary: Summary) -> Row:
    return Row(f"Turns {summary.start_sequence}–{summary.end_sequence}, {summary.status}", change_url(summary))


def _row(row: Model) -> Row:
    return Row(str(row), change_url(row))


def _event_row(event: Message) -> Row:
    return Row(f"after turn {event.sequence}", turn_url(event.session_id, event.sequence))


def _mention_row(row: Message | Job | Event) -> Row:
    if isinstance(row, Message):
        return _event_row(row)
    if isinstance(row, Job):
        return Row(f"job {row}", change_url(row))
    return Row(f"event {row}", change_url(row))


class RetractionForm(FormPage[Retraction]):
    """The page of a retraction: the rows that were withdrawn or rewritten."""

    after = "operator/retractions/items.html"

    def context(self) -> dict[str, Any]:
        retraction = self.row
        items, more = first_of(self._items(), ITEMS_SHOWN)
        return {
            "retraction": retraction,
            "kinds": list(_by_kind(items).items()),
            "has_more_items": more is not None,
            "may_check": retraction.undone_at is None and _may_check(self.request, retraction),
            "may_undo": self.admin.has_steer_permission(self.request) and retraction.undone_at is None,
            "sees_items": self.request.user.has_perms(SEE_MEMORY),
        }

    def _items(self) -> QuerySet[RetractedItem]:
        """Return the withdrawn rows, for operators who may see such rows in their own tables."""
        items = self.row.items.order_by("model", "is_rewritten", "object_pk")
        return items if self.request.user.has_perms(SEE_MEMORY) else items.none()


class RetractTurns(SessionPage):
    """Select turns, preview what would be withdrawn with them, and retract them."""

    route, name, needs = "<int:pk>/retract/", "retract", ("moments_app.add_retraction", *SEE_MEMORY)
    template_name = "operator/sessions/retract.html"

    def context(self) -> dict[str, Any]:
        form, left = _form_of(self.request), _answers_to_leave(self.request)
        return super().context() | {"form": form, "left": left} | _preview(form, self.row, left)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = ReasonForm(request.POST)
        if PREVIEW in request.POST or not form.is_valid():
            return self.page()
        leave = _answers_to_leave(request)
        try:
            retraction = retract(self.row, **form.cleaned_data, requested_by=self.actor, leave=leave)
        except CannotRetract as error:
            return self.page(problem=without_field(error))
        turns = retraction.result["turns"] + sum(each.result["turns"] for each in retraction.consequences())
        message = f"{_retracted(turns, 'turn')}. Items that also come from other turns are being rebuilt."
        self.log(self.row, f"Retraction {retraction}.", message)
        return HttpResponseRedirect(_next_url(request, retraction))


def _retracted(number: int, what: str) -> str:
    return f"1 {what} is retracted" if number == 1 else f"{number:,} {what}s are retracted"


def _may_check(request: HttpRequest, retraction: Retraction) -> bool:
    return retraction.user_id is not None and request.user.has_perms(CheckRetraction.needs)


def _next_url(request: HttpRequest, retraction: Retraction) -> str:
    """Return the URL of `CheckRetraction` if the operator may open this page, otherwise of the retraction's page."""
    if _may_check(request, retraction):
        return page_url(Retraction, CheckRetraction.name, retraction.pk)
    return change_url(retraction)


class ItemsForm(forms.Form):
    """A reason, and the choice to retract everything that the item's writer wrote directly."""

    all_of_writer = forms.BooleanField(required=False)
    reason = forms.CharField(max_length=2_000)


def _groups_of_items(found: Preview) -> list[Group]:
    own = _groups_in_streams(found.dependents)
    titles = {group.title for group in own}
    others = [group for group in _groups(found.of_turns) if group.title not in titles]
    return [group for group in (*own, *others) if group.count]


class RetractItems(RowPage[MemoryAtom]):
    """Preview and retract a directly written item, or everything that its writer wrote."""

    route, name, needs = "<int:pk>/retract/", "retract", RETRACT_DIRECTLY
    template_name = "operator/retractions/direct.html"
    has_trail = True

    def context(self) -> dict[str, Any]:
        is_sent = self.request.method == "POST"
        form = _with_reason(ItemsForm(self.request.POST), self.request) if is_sent else ItemsForm()
        left = _answers_to_leave(self.request)
        addresses = {"back": change_url(self.row), "here": page_url(self.row, "retract", self.row.pk)}
        shown = addresses | {"row": self.row, "form": form, "is_about_all": self._is_about_all()}
        try:
            found = preview_items(self.owner(), self._selection(), leave=left)
        except CannotRetract as error:
            return shown | {"problem": without_field(error)}
        return shown | {"preview": found, "groups": _groups_of_items(found), "left": left}

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = ItemsForm(request.POST)
        if PREVIEW in request.POST or not form.is_valid():
            return self.page()
        try:
            reason, leave = form.cleaned_data["reason"], _answers_to_leave(request)
            retraction = retract_items(
                self.owner(), self._selection(), reason=reason, requested_by=self.actor, leave=leave
            )
        except CannotRetract as error:
            return self.page(problem=without_field(error))
        items = _retracted(retraction.result["items"], "item")
        messages.success(request, f"{items}. Items that also come from other sources are being rebuilt.")
        return HttpResponseRedirect(_next_url(request, retraction))

    def owner(self) -> Owner:
        """Return the item's owner: a person, or a shard whose users all see the item."""
        return self.row.user or self.row.stream

    def _is_about_all(self) -> bool:
        asked = self.request.POST if self.request.method == "POST" else self.request.GET
        return bool(asked.get("all_of_writer")) and bool(self.row.written_by)

    def _selection(self) -> ItemSelection:
        return (
            ItemSelection(written_by=self.row.written_by) if self._is_about_all() else ItemSelection([self.row.atom_id])
        )


class CheckRetraction(RowPage[Retraction]):
    """Query the person's memory again, and show what still contains the retracted text."""

    route, name, needs = "<int:pk>/check/", "check", (PREVIEW_CONTEXT, *SEE_MEMORY)
    template_name = "operator/retractions/check.html"
    has_trail = True

    def rows(self) -> QuerySet[Retraction]:
        return super().rows().filter(undone_at=None).exclude(user=None)

    def context(self) -> dict[str, Any]:
        user = self.row.user
        assert user is not None  # `rows()` excludes retractions without a user
        found = check_retraction(self.row, user)
        pages = Pages(user, [line.ref for line in found.lines])
        return {"retraction": self.row, "found": found, "lines": [(line, pages.of(line.ref)) for line in found.lines]}


class UndoRetraction(RowAction[Retraction]):
    """Undo a retraction."""

    route, name, permission = "<int:pk>/undo/", "undo", "steer"

    def change(self, retraction: Retraction) -> str:
        undo = partial(undo_retraction, retraction, requested_by=self.actor)
        message = f"The {retraction} is undone."
        self.attempt(retraction, undo, log="Undone.", message=message)
        return change_url(retraction)


def _by_kind(items: Sequence[RetractedItem]) -> dict[str, list[RetractedItem]]:
    """Group rows by table. Rows that were only rewritten form separate groups, and have their former values."""
    kinds: dict[str, list[RetractedItem]] = {}
    for item in items:
        title = _title(item.table) + (", before they were rewritten" if item.is_rewritten else "")
        kinds.setdefault(title, []).append(item)
    return kinds
