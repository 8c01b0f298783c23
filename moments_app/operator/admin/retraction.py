"""Retractions: what was withdrawn and why, undoing them, and the page on which one is made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.text import capfirst
from django.views.decorators.http import require_POST

from moments_app.models import Job, MemoryAtom, Moment, RetractedItem, Retraction, StreamVersion, Summary
from moments_app.provenance.derived import Derived
from moments_app.provenance.retract import CannotRetract, preview, sequences_of
from moments_app.provenance.undo import undo_retraction
from sessions_app.admin.base import ReadOnlyAdmin, prefix_search
from sessions_app.models import Event, Message, Session

ITEMS_SHOWN = 500
ROWS_SHOWN = 50  # of a kind, in a preview


class TurnsForm(forms.Form):
    """Which turns."""

    sequences = forms.CharField(max_length=10_000, required=False)

    def clean_sequences(self) -> list[int] | None:
        """Those named; None: all the session has."""
        text: str = self.cleaned_data["sequences"].strip()
        try:
            return sequences_of(text) if text else None
        except CannotRetract as error:
            raise forms.ValidationError(str(error)) from error


class RetractionForm(TurnsForm):
    """Which turns, and why."""

    reason = forms.CharField(max_length=2_000)


def form_of(request: HttpRequest) -> TurnsForm:
    """What was asked for: by what is posted, by a text in the address, or by turns that were ticked."""
    if request.method == "POST":
        return RetractionForm(request.POST)
    if "sequences" in request.GET:
        return TurnsForm(request.GET)
    ticked = sorted({int(turn) for turn in request.GET.getlist("turn") if turn.isdecimal() and len(turn) < 19})
    return TurnsForm({"sequences": ",".join(map(str, ticked))}) if ticked else TurnsForm()


@dataclass(frozen=True)
class Row:
    """Something that would be withdrawn, and its page."""

    label: str
    url: str


@dataclass(frozen=True)
class Group:
    """What would be withdrawn of a kind: the first rows of it, and how many there are more."""

    title: str
    count: int
    rows: list[Row]

    @property
    def more(self) -> int:
        return self.count - len(self.rows)


def previewed_retraction(form: TurnsForm, session: Session) -> dict[str, Any]:
    """What the page shows: what would be withdrawn, or why nothing can be; nothing where turns are not named yet."""
    if not form.is_bound or (not form.is_valid() and "sequences" in form.errors):
        return {}
    try:
        found = preview(session, form.cleaned_data["sequences"])
    except CannotRetract as error:
        return {"problem": str(error)}
    return {"preview": found, "groups": _groups(found.derived)}


def _groups(found: Derived) -> list[Group]:
    """By kind, in the order in which one is made of another."""
    person = reverse("admin:sessions_app_userprofile_change", args=[found.session.user_id])
    versions = found.profile.versions if found.profile else []
    groups = [
        _group("Moments", found.moments, _moment_row),
        _group("Summaries", found.summaries, _summary_row),
        _group("Facts and observations", found.atoms, _atom_row),
        _group("Versions of streams' texts", found.versions, _version_row),
        _group("Versions of the profile", versions, lambda version: Row(f"before {_time(version)}", person)),
        _group("Partition events", found.events, _event_row),
        _group("Rewritten: they name one of the moments, or tell of it", found.mentions, _mention_row),
        _group("Journeys that may have led through one of the moments", found.journeys, _moment_row),
    ]
    return [group for group in groups if group.count]


def _group(title: str, rows: Sequence[Any], row: Callable[[Any], Row]) -> Group:
    return Group(title, len(rows), [row(one) for one in rows[:ROWS_SHOWN]])


def _page(name: str, row: Model) -> str:
    return reverse(f"admin:{name}_change", args=[row.pk])


def _time(row: Any) -> str:
    return f"{row.created_at:%Y-%m-%d %H:%M}"


def _moment_row(moment: Moment) -> Row:
    label = f"{moment.name}, turns {moment.first_sequence}–{moment.last_sequence}"
    return Row(label, _page("moments_app_moment", moment))


def _summary_row(summary: Summary) -> Row:
    return Row(
        f"Turns {summary.start_sequence}–{summary.end_sequence}, {summary.status}",
        _page("moments_app_summary", summary),
    )


def _atom_row(atom: MemoryAtom) -> Row:
    return Row(str(atom), _page("moments_app_memoryatom", atom))


def _version_row(version: StreamVersion) -> Row:
    return Row(f"of {_time(version)}", reverse("admin:moments_app_memorystream_change", args=[version.stream_id]))


def _event_row(event: Message) -> Row:
    session = reverse("admin:sessions_app_session_change", args=[event.session_id])
    return Row(f"after turn {event.sequence}", f"{session}?at={event.sequence}#turn-{event.sequence}")


def _mention_row(row: Message | Job | Event) -> Row:
    if isinstance(row, Message):
        return _event_row(row)
    if isinstance(row, Job):
        return Row(f"job {row}", _page("moments_app_job", row))
    return Row(f"event {row}", _page("sessions_app_event", row))


@admin.register(Retraction)
class RetractionAdmin(ReadOnlyAdmin):
    """What is no longer believed, newest first."""

    list_display = ("created_at", "session", "user", "reason", "requested_by", "undone_at")
    list_select_related = ("session", "user")
    list_filter = (("undone_at", admin.EmptyFieldListFilter),)
    search_fields = ("session__session_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-id",)
    actions = ("undo_selected",)
    change_form_outer_after_template = "operator/retractions/items.html"
    fields = (
        ("session", "user", "sequences"),
        "reason",
        ("requested_by", "created_at", "undone_at", "retraction_id"),
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Retraction], search_term: str
    ) -> tuple[QuerySet[Retraction], bool]:
        return prefix_search(queryset, search_term, "session__session_id", "user__user_id"), False

    def get_urls(self) -> list[URLPattern]:
        undo = self.admin_site.admin_view(self.undo)
        return [path("<int:pk>/undo/", undo, name="moments_app_retraction_undo"), *super().get_urls()]

    def around(self, request: HttpRequest, obj: Retraction) -> dict[str, Any]:
        """The rows that were withdrawn or rewritten, and undoing it."""
        items = list(obj.items.order_by("model", "is_rewritten", "object_pk")[: ITEMS_SHOWN + 1])
        return {
            "retraction": obj,
            "kinds": _kinds(items[:ITEMS_SHOWN]),
            "has_more_items": len(items) > ITEMS_SHOWN,
            "may_undo": self.has_undo_permission(request) and obj.undone_at is None,
        }

    def has_undo_permission(self, request: HttpRequest) -> bool:
        """Whoever may change retractions."""
        return request.user.has_perm("moments_app.change_retraction")

    @method_decorator(require_POST)
    def undo(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Undoes one; says where it can't be, and why."""
        if not self.has_undo_permission(request):
            raise PermissionDenied
        self._undo(request, get_object_or_404(Retraction, pk=pk))
        return HttpResponseRedirect(reverse("admin:moments_app_retraction_change", args=[pk]))

    @admin.action(description="Undo the selected retractions", permissions=["undo"])
    def undo_selected(self, request: HttpRequest, queryset: QuerySet[Retraction]) -> None:
        """The newest first; says which can't be undone, and why."""
        for retraction in queryset.order_by("-id"):
            self._undo(request, retraction)

    def _undo(self, request: HttpRequest, retraction: Retraction) -> None:
        undo = partial(undo_retraction, retraction, requested_by=f"operator:{request.user}")
        told = f"{retraction} is undone."
        self.attempt(request, retraction, undo, log="Undone.", told=told, about=str(retraction))


@dataclass(frozen=True)
class Kind:
    """What is kept of one table: rows that were withdrawn, or as they were before they were rewritten."""

    title: str
    items: list[RetractedItem]


def _kinds(items: Sequence[RetractedItem]) -> list[Kind]:
    kinds: dict[tuple[str, bool], Kind] = {}
    for item in items:
        name = capfirst(str(item.table._meta.verbose_name_plural))
        title = f"{name}, as they were before they were rewritten" if item.is_rewritten else name
        kinds.setdefault((item.model, item.is_rewritten), Kind(title, [])).items.append(item)
    return list(kinds.values())
