"""The list of facts and observations, and the form of an item."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from moments_app.models import Cause, MemoryAtom
from moments_app.operator.admin.filters import KindFilter, UserFilter
from moments_app.operator.views.atom import AtomForm, EvictAtom, MoveAtom, RestoreAtom
from moments_app.operator.views.fact import CorrectFact, SaidElsewhere
from moments_app.operator.views.retraction import RetractItems
from moments_app.operator.views.stream import stream_named
from moments_app.streams.add_atoms import note_growth
from moments_app.streams.known_people import link_people, rebuild_known_people
from sessions_app.admin.base import PageAdmin
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import actor_of
from sessions_app.database.sql import lock_rows
from sessions_app.models import UserProfile

SEARCHED = 20_000  # newest items to search, if neither a person nor a stream is selected
FOUND = 1_000  # maximum items, and people
COLORS = {"active": "success", "absorbed": "info", "ended": "primary", "evicted": "warning", "line": "info"}
# Columns that are read from the text.
DESCRIBED = ("subject", "attribute", "value", "valid_from", "valid_until", "worth", "kind", "about_kind", "about")


class StateFilter(admin.ChoicesFieldListFilter):
    """The states in the words of the admin."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        every, *states = super().choices(changelist)
        yield every
        yield from ({**each, "display": MemoryAtom.STATES[str(each["display"]).lower()]} for each in states)


@admin.register(MemoryAtom)
class MemoryAtomAdmin(PageAdmin):
    """Memory items. An item that an operator writes is pinned, which keeps it word for word."""

    list_display = ("content", "sort", "state_label", "in_stream", "formed", "recalled")
    applications = ("user__application", "stream__application")
    list_filter = (UserFilter, ("atom_type", KindFilter), ("state", StateFilter), "is_pinned")
    list_filter_submit = True
    paginator = InfinitePaginator
    sortable_by = ()
    search_fields = ("content",)
    search_help_text = f"Words from the newest {SEARCHED:,} items, or the start of a user_id"
    when_empty = "No facts or observations yet. They are formed from conversations."
    list_before_template = "operator/facts/of_stream.html"
    form_page = AtomForm
    views = (EvictAtom, RestoreAtom, MoveAtom, SaidElsewhere, CorrectFact, RetractItems)
    open_lookups = ("stream__id__exact",)
    ordering = ("-id",)
    raw_id_fields = ("stream",)
    fields = ("content", ("is_pinned", "formed_at"), "related_users")
    add_fieldsets = ((None, {"fields": ("stream", "atom_type", "content", "formed_at")}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryAtom]:
        queryset: QuerySet[MemoryAtom] = super().get_queryset(request)
        return queryset.select_related("stream__user", "stream__session")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Add the stream's name if the list shows the items of one stream."""
        of_stream = {"of_stream": stream_named(request, "stream__id__exact")}
        response: HttpResponse = super().changelist_view(request, (extra_context or {}) | of_stream)
        return response

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add the name of the stream that the item is for, if the operator comes from its page."""
        of_stream = {"of_stream": stream_named(request, "stream")}
        response: HttpResponse = super().add_view(request, form_url, (extra_context or {}) | of_stream)
        return response

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        labels = {"stream": "Memory text", "atom_type": "Kind", "formed_at": "Said at"}
        help_texts = {"is_pinned": "Jobs never change or merge a pinned item, and every context includes it."}
        form = super().get_form(request, obj, change, **kwargs | {"labels": labels, "help_texts": help_texts})
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
        # Search by the few primary keys found. In a single statement, each half of the condition would scan all
        # rows.
        people = list(UserProfile.objects.filter(user_id__startswith=term).values_list("pk", flat=True)[:FOUND])
        floor = MemoryAtom.objects.order_by("-pk").values_list("pk", flat=True)[SEARCHED - 1 : SEARCHED].first() or 0
        by_words = MemoryAtom.objects.filter(pk__gte=floor).matching(term).order_by("-pk")
        found = list(by_words.values_list("pk", flat=True)[:FOUND])
        return queryset.filter(Q(user__in=people) | Q(pk__in=found)), False

    def has_change_permission(self, request: HttpRequest, obj: MemoryAtom | None = None) -> bool:
        """Forbid changes to items that are no longer in memory, and to the wording of a release, which is signed."""
        is_kept = obj is None or (obj.state == MemoryAtom.State.ACTIVE and not hasattr(obj, "release"))
        return is_kept and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # items are evicted, not deleted, so that former contexts can be explained

    def save_model(self, request: HttpRequest, obj: MemoryAtom, form: Any, change: bool) -> None:
        """Pin the operator's text, so that the next context includes it."""
        cause = Cause(actor_of(request))
        if not change:
            obj.user_id, obj.written_by = obj.stream.user_id, cause.actor
        # Lock the user before the stream and the item, in the common lock order.
        lock_rows(UserProfile.objects.filter(pk__in=[obj.user_id] if obj.user_id else []))
        is_written = not change or "content" in form.changed_data
        obj.is_pinned = obj.is_pinned or is_written
        if is_written:
            obj.kind, obj.valid_from = MemoryAtom.Kind.OTHER, None  # read again from the new text
        obj.valid_until = None
        obj.describe()
        was_about = obj.about_id
        if is_written:
            link_people([obj])
        if change:
            obj.save_edit(cause, update_fields=[*form.changed_data, "content_hash", "is_pinned", *DESCRIBED])
        else:
            super().save_model(request, obj, form, change)
        if is_written:
            obj.embeddings.all().delete()  # the vectors of the former text
            rebuild_known_people([was_about] if was_about else [])
        note_growth(obj, requested_by=cause.actor)

    def response_add(self, request: HttpRequest, obj: MemoryAtom, post_url_continue: str | None = None) -> HttpResponse:
        """Go back to the stream that the item was added to."""
        response: HttpResponse = super().response_add(request, obj, post_url_continue)
        is_plain = "_continue" not in request.POST and "_addanother" not in request.POST
        return HttpResponseRedirect(change_url(obj.stream)) if is_plain else response

    # --- the list ---

    @admin.display(description="Kind")
    def sort(self, atom: MemoryAtom) -> str:
        marks = [mark for mark, holds in (("pinned", atom.is_pinned), ("not released", atom.is_candidate)) if holds]
        kinds = [atom.kind] if atom.kind != MemoryAtom.Kind.OTHER else []
        return ", ".join([atom.atom_type, *kinds, *marks])

    @display(description="State", label=COLORS)  # type: ignore[untyped-decorator]
    def state_label(self, atom: MemoryAtom) -> tuple[str, str]:
        return atom.state, atom.state_in_words

    @admin.display(description="Memory text")
    def in_stream(self, atom: MemoryAtom) -> str:
        return atom.stream.title

    @admin.display(description="Said")
    def formed(self, atom: MemoryAtom) -> str:
        return f"{atom.formed_at:%Y-%m-%d %H:%M}"

    @admin.display(description="Used")
    def recalled(self, atom: MemoryAtom) -> str:
        if atom.last_accessed_at is None:
            return "never"
        return f"{atom.access_count}×, last {atom.last_accessed_at:%Y-%m-%d %H:%M}"
