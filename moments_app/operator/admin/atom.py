"""Facts and observations: where each comes from, and what an operator does to one."""

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from moments_app.jobs.process import has_grown
from moments_app.models import MemoryAtom, MemoryStream
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.admin.recall_console import RecallConsole
from moments_app.operator.admin.transcript import entries
from moments_app.streams import consolidate, curate
from sessions_app.models import Message, UserProfile
from sessions_app.retention.read_archived import with_text

SEARCHED = 20_000  # the newest items, where neither a person nor a stream is chosen
FOUND = 1_000  # items, and people
TARGETS = 100  # streams to move an item to
SOURCES = 50  # turns
STATES = {"active": "success", "absorbed": "info", "evicted": "warning"}  # colours


class MoveForm(forms.Form):
    """Where to: another stream of the same person; for a shard's item another shard."""

    stream = forms.ModelChoiceField(MemoryStream.objects.none())

    def __init__(self, atom: MemoryAtom, data: Any = None) -> None:
        super().__init__(data)
        streams = MemoryStream.objects.filter(user=atom.user_id).exclude(pk=atom.stream_id)
        self.fields["stream"].queryset = streams  # type: ignore[attr-defined]
        self._streams = streams.select_related("user", "session").order_by("-stream_type", "-last_updated_at", "-pk")

    def targets(self) -> list[MemoryStream]:
        """Those to choose from: the person's own first, then those of sessions, latest first."""
        return list(self._streams[:TARGETS])


@admin.register(MemoryAtom)
class MemoryAtomAdmin(RecallConsole):
    """Items with where they come from. What an operator writes is pinned: kept word for word."""

    list_display = ("content", "kind", "state_label", "in_stream", "said", "recalled")
    list_filter = (UserFilter, "atom_type", "state", "is_pinned")
    list_filter_submit = True
    paginator = InfinitePaginator
    sortable_by = ()
    search_fields = ("content",)
    search_help_text = f"Words in the newest {SEARCHED:,}, or the beginning of a user_id"
    when_empty = "Facts and observations appear as conversations are formed into streams."
    list_before_template = "operator/facts/of_stream.html"
    change_form_outer_before_template = "operator/facts/fact.html"
    change_form_outer_after_template = "operator/facts/source.html"
    ordering = ("-id",)
    raw_id_fields = ("stream",)
    fields = ("content", ("is_pinned", "formed_at"))
    add_fieldsets = ((None, {"fields": ("stream", "atom_type", "content", "formed_at")}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryAtom]:
        queryset: QuerySet[MemoryAtom] = super().get_queryset(request)
        return queryset.select_related("stream__user", "stream__session")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Says whose items are shown where they are of one stream."""
        of_stream = {"of_stream": _stream(request.GET.get("stream__id__exact", ""))}
        response: HttpResponse = super().changelist_view(request, (extra_context or {}) | of_stream)
        return response

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Says which stream it is for, when one comes from there."""
        of_stream = {"of_stream": _stream(request.GET.get("stream", ""))}
        response: HttpResponse = super().add_view(request, form_url, (extra_context or {}) | of_stream)
        return response

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        labels = {"atom_type": "Kind", "formed_at": "Said at"}
        form = super().get_form(request, obj, change, **kwargs | {"labels": labels})
        if "content" in form.base_fields:
            form.base_fields["content"].widget.attrs["rows"] = 3
        return form

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[MemoryAtom], search_term: str
    ) -> tuple[QuerySet[MemoryAtom], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        if request.GET.get(UserFilter.parameter_name) or request.GET.get("stream__id__exact"):
            return queryset.matching(term), False  # type: ignore[attr-defined]
        # By primary keys, which are few: in one statement either half would be looked for in all rows.
        people = list(UserProfile.objects.filter(user_id__startswith=term).values_list("pk", flat=True)[:FOUND])
        floor = MemoryAtom.objects.order_by("-pk").values_list("pk", flat=True)[SEARCHED - 1 : SEARCHED].first() or 0
        by_words = MemoryAtom.objects.filter(pk__gte=floor).matching(term).order_by("-pk")
        found = list(by_words.values_list("pk", flat=True)[:FOUND])
        return queryset.filter(Q(user__in=people) | Q(pk__in=found)), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "stream__id__exact" or super().lookup_allowed(lookup, value, request)

    def has_change_permission(self, request: HttpRequest, obj: MemoryAtom | None = None) -> bool:
        """What is not in memory any more stays as it was when it said so."""
        is_kept = obj is None or obj.state == MemoryAtom.State.ACTIVE
        return is_kept and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # evicted, not deleted: what memory said has to be found again

    def save_model(self, request: HttpRequest, obj: MemoryAtom, form: Any, change: bool) -> None:
        """What an operator wrote is pinned, and stands in the next context."""
        is_written = not change or "content" in form.changed_data
        obj.is_pinned = obj.is_pinned or is_written
        if change:
            obj.save(update_fields=[*form.changed_data, "content_hash", "is_pinned"])
        else:
            obj.user_id = obj.stream.user_id
            super().save_model(request, obj, form, change)
        if is_written:
            obj.embeddings.all().delete()  # it is found by what it says now
        has_grown(obj.stream, requested_by=f"operator:{request.user}")

    def response_add(self, request: HttpRequest, obj: MemoryAtom, post_url_continue: str | None = None) -> HttpResponse:
        """Back to the stream it was written into."""
        response: HttpResponse = super().response_add(request, obj, post_url_continue)
        is_plain = "_continue" not in request.POST and "_addanother" not in request.POST
        return HttpResponseRedirect(_page_of(obj.stream)) if is_plain else response

    # --- the list ---

    @admin.display(description="Kind")
    def kind(self, atom: MemoryAtom) -> str:
        return f"{atom.atom_type}, pinned" if atom.is_pinned else atom.atom_type

    @display(description="State", label=STATES)  # type: ignore[untyped-decorator]
    def state_label(self, atom: MemoryAtom) -> str:
        return atom.state

    @admin.display(description="Stream")
    def in_stream(self, atom: MemoryAtom) -> str:
        return atom.stream.title

    @admin.display(description="Said")
    def said(self, atom: MemoryAtom) -> str:
        return f"{atom.formed_at:%Y-%m-%d %H:%M}"

    @admin.display(description="Recalled")
    def recalled(self, atom: MemoryAtom) -> str:
        if atom.last_accessed_at is None:
            return "never"
        return f"{atom.access_count}×, last {atom.last_accessed_at:%Y-%m-%d %H:%M}"

    # --- the page of one ---

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, "moments_app_memoryatom"
        return [
            path("<int:pk>/evict/", view(self.evict), name=f"{name}_evict"),
            path("<int:pk>/restore/", view(self.restore), name=f"{name}_restore"),
            path("<int:pk>/move/", view(self.move), name=f"{name}_move"),
            *super().get_urls(),
        ]

    def around(self, request: HttpRequest, obj: MemoryAtom) -> dict[str, Any]:
        """Where it comes from, and where it may go."""
        may_move = self.has_change_permission(request, obj)
        turns = list(Message.objects.filter(pk__in=obj.source_message_ids).select_related("session").in_order())
        return {
            "show_save_and_add_another": False,
            "atom": obj,
            "may_move": may_move,
            "may_evict": may_move or (self.has_change_permission(request) and _is_left_behind(obj)),
            "may_restore": obj.state == MemoryAtom.State.EVICTED and self.has_change_permission(request),
            "targets": MoveForm(obj).targets() if may_move else [],
            "calls": obj.job.engine_calls.all() if obj.job else (),
            "entries": entries(with_text(turns[0].user, turns[:SOURCES]) if turns else ()),
            "last_turn": turns[-1] if turns else None,
            "missing": len(obj.source_message_ids) - len(turns),
        }

    @method_decorator(require_POST)
    def evict(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Takes it out of memory."""
        atom = self._changeable(request, pk)
        told = "Evicted: no context and no search has it any more."
        self.attempt(request, atom, partial(curate.evict, atom), log="Evicted.", told=told)
        return HttpResponseRedirect(_page_of(atom))

    @method_decorator(require_POST)
    def restore(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Takes it back into memory."""
        atom = self._changeable(request, pk)
        restore = partial(curate.restore, atom, requested_by=f"operator:{request.user}")
        self.attempt(request, atom, restore, log="Restored.", told="Restored: it is in memory again.")
        return HttpResponseRedirect(_page_of(atom))

    @method_decorator(require_POST)
    def move(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Moves it to another stream."""
        atom = self._changeable(request, pk)
        form = MoveForm(atom, request.POST)
        if not form.is_valid():
            messages.error(request, "Choose a stream of the same person.")
            return HttpResponseRedirect(_page_of(atom))
        stream = form.cleaned_data["stream"]
        move = partial(curate.move, atom, stream, requested_by=f"operator:{request.user}")
        log = f"Moved from {atom.stream.title} to {stream.title}."
        self.attempt(request, atom, move, log=log, told=f"Moved to {stream.title}.")
        return HttpResponseRedirect(_page_of(atom))

    def _changeable(self, request: HttpRequest, pk: int) -> MemoryAtom:
        if not self.has_change_permission(request):
            raise PermissionDenied
        return get_object_or_404(self.get_queryset(request), pk=pk)


def _is_left_behind(atom: MemoryAtom) -> bool:
    """Whether a text absorbed it that says it no longer."""
    return atom.state == MemoryAtom.State.ABSORBED and not consolidate.is_carried(atom)


def _stream(pk: str) -> MemoryStream | None:
    streams = MemoryStream.objects.select_related("user", "session")
    return streams.filter(pk=pk).first() if pk.isdecimal() else None


def _page_of(thing: MemoryAtom | MemoryStream) -> str:
    return reverse(f"admin:moments_app_{thing._meta.model_name}_change", args=[thing.pk])
