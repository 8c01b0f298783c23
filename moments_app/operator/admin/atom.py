"""The lists of facts and observations, of tasks and goals, of known people, and of stored items."""

from collections.abc import Collection, Iterator
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.text import capfirst
from unfold.admin import TabularInline
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from moments_app.models import Cause, Entity, EntityLink, KnownPerson, MemoryAtom, StatementChange, StoredItem
from moments_app.models.entity import EntityKind, EntityQuerySet, EntityStatus
from moments_app.operator.admin.stream import KindFilter, requested_stream
from moments_app.operator.person_pages import may_retract_directly
from moments_app.operator.views.fact import AtomForm, CorrectFact, EvictAtom, MatchingItems, MoveAtom, RestoreAtom
from moments_app.operator.views.retraction import RetractItems
from moments_app.streams.add_atoms import process_manual_change
from moments_app.streams.edit import change_entity, delete_entity, lock_entity
from moments_app.streams.known_people import link_people, rebuild_known_people
from moments_app.streams.texts import lock_stream
from moments_app.streams.timeline import refresh_derived
from sessions_app.admin.base import DaysFilter, PageAdmin, ReadOnlyAdmin, UserFilter, matching_any
from sessions_app.admin.links import change_url, column, link_column
from sessions_app.admin.views import FormPage, actor_of, first_of, may_see
from sessions_app.database.sql import lock_rows
from sessions_app.models import UserProfile
from sessions_app.models.event import named_actor

SEARCHED = 20_000  # maximum items to search, newest first, if neither a person nor a stream is selected
FOUND = 1_000  # maximum items or people in a search result
COLORS = {"active": "success", "absorbed": "info", "ended": "primary", "evicted": "warning", "line": "info"}
# Columns that `describe` sets from the content.
DESCRIBED = ("subject", "attribute", "value", "valid_from", "valid_until", "worth", "kind", "about_kind", "about")
LAST_CHANGE = "operator/facts/last_change.html"  # the template of the hidden field of `ItemFields`
LINKS_SHOWN = 100
FACTS_SHOWN = 50


def found_by_words(rows: QuerySet[Any], matching: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the rows in `matching`, and the rows of people whose `user_id` starts with the search term."""
    return matching_any(rows, rows.filter(pk__in=matching.values("pk")), rows.filter(user__user_id__startswith=term))


class StateFilter(admin.ChoicesFieldListFilter):
    """A filter that shows the titles of states from `MemoryAtom.STATES`."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        every, *states = super().choices(changelist)
        yield every
        yield from ({**each, "display": MemoryAtom.STATES[str(each["display"]).lower()]} for each in states)


class ItemFields(forms.ModelForm):  # type: ignore[type-arg]
    """The fields of an item, and its last change when the form was opened.

    If the item has changed since then, the form saves nothing and shows the current text.
    """

    last_change = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        newest = self._newest_change() if self.instance.pk else None
        self.initial["last_change"] = newest.pk if newest else None

    def _newest_change(self) -> StatementChange | None:
        return self.instance.history.newest_first().first()  # type: ignore[no-any-return]

    def clean(self) -> dict[str, Any]:
        """Lock the stream until the item is saved, and check for newer changes."""
        values: dict[str, Any] = super().clean() or {}
        atom = self.instance
        if atom.pk is None:
            return values
        lock_stream(atom.stream_id, atom.user_id)
        newest = self._newest_change()
        if newest and newest.pk != values.get("last_change"):
            # A second save is allowed.
            self.data = cast(QueryDict, self.data).dict() | {"last_change": newest.pk}
            atom.refresh_from_db(fields=["content"])
            raise forms.ValidationError(
                f"{capfirst(named_actor(newest.actor))} changed this item in the meantime. Nothing was saved. The "
                f"item's text is now “{atom.content}”. If you save again, you overwrite it."
            )
        return values


class AtomFields(ItemFields):
    class Meta:
        labels = {"stream": "Memory text", "atom_type": "Kind", "formed_at": "Said at"}
        help_texts = {"is_pinned": "Jobs never change or merge a pinned item, and every context includes it."}
        widgets = {"content": UnfoldAdminTextareaWidget(attrs={"rows": 3})}


@admin.register(MemoryAtom)
class MemoryAtomAdmin(PageAdmin):
    """Memory items. An item that an operator writes is pinned, which keeps it word for word."""

    list_display = ("content", "sort", "state_label", "in_stream", "formed", "recalled")
    list_filter = (UserFilter, ("atom_type", KindFilter), ("state", StateFilter), "is_pinned")
    sortable_by = ()
    search_fields = ("content",)
    search_help_text = f"Words from the newest {SEARCHED:,} items, or the start of a user_id"
    when_empty = "No facts or observations yet. They are formed from conversations."
    may_delete = False  # items are evicted, not deleted, so that former contexts can be explained
    list_before_template = "operator/facts/of_stream.html"
    form, form_page = AtomFields, AtomForm
    change_form_before_template = LAST_CHANGE
    views = (EvictAtom, RestoreAtom, MoveAtom, MatchingItems, CorrectFact, RetractItems)
    open_lookups = ("stream__id__exact",)
    ordering = ("-id",)
    raw_id_fields = ("stream",)
    fields = ("content", ("is_pinned", "formed_at"), "related_users")
    add_fieldsets = ((None, {"fields": ("stream", "atom_type", "content", "formed_at")}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryAtom]:
        queryset: QuerySet[MemoryAtom] = super().get_queryset(request)
        return queryset.select_related("stream__user", "stream__session")

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        return {"of_stream": requested_stream(request, "stream__id__exact")}

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        of_stream = {"of_stream": requested_stream(request, "stream")}
        response: HttpResponse = super().add_view(request, form_url, (extra_context or {}) | of_stream)
        return response

    def search(self, request: HttpRequest, rows: Any, term: str) -> QuerySet[MemoryAtom]:
        if request.GET.get(UserFilter.parameter_name) or request.GET.get("stream__id__exact"):
            return rows.matching(term)  # type: ignore[no-any-return]
        # Find the primary keys first, because they are few. In a single query, each half of the condition would scan
        # all rows.
        people = list(UserProfile.objects.filter(user_id__startswith=term).values_list("pk", flat=True)[:FOUND])
        floor = MemoryAtom.objects.order_by("-pk").values_list("pk", flat=True)[SEARCHED - 1 : SEARCHED].first() or 0
        by_words = MemoryAtom.objects.filter(pk__gte=floor).matching(term).order_by("-pk")
        found = list(by_words.values_list("pk", flat=True)[:FOUND])
        return rows.filter(Q(user__in=people) | Q(pk__in=found))  # type: ignore[no-any-return]

    def has_change_permission(self, request: HttpRequest, obj: MemoryAtom | None = None) -> bool:
        """Prevent changes to items that are no longer active, and to released wordings, which are signed."""
        is_kept = obj is None or (obj.state == MemoryAtom.State.ACTIVE and not hasattr(obj, "release"))
        return is_kept and bool(super().has_change_permission(request, obj))

    def save_model(self, request: HttpRequest, obj: MemoryAtom, form: Any, change: bool) -> None:
        """Save the item. If the operator wrote the text, pin it, so that every context includes it."""
        cause = Cause(actor_of(request))
        if not change:
            obj.user_id, obj.written_by = obj.stream.user_id, cause.actor
        # Lock the user first, in the same order as elsewhere, to prevent deadlocks.
        lock_rows(UserProfile.objects.filter(pk__in=[obj.user_id] if obj.user_id else []))
        if obj.is_listed:
            self._save_listed(obj, form.changed_data, cause)
            return
        is_written = not change or "content" in form.changed_data
        obj.is_pinned = obj.is_pinned or is_written
        if is_written:
            obj.kind, obj.valid_from = MemoryAtom.Kind.OTHER, None  # `describe` sets them again
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
            obj.embeddings.all().delete()  # delete the vectors of the former text
            rebuild_known_people([was_about] if was_about else [])
        process_manual_change(obj, requested_by=cause.actor)

    def _save_listed(self, atom: MemoryAtom, changed: Collection[str], cause: Cause) -> None:
        """Save a task, goal or problem that a client wrote or reworded.

        It remains a task, goal or problem, and is not pinned.
        """
        lock_entity(atom)
        entity = Entity.objects.get(pk=atom.pk)
        if (content := atom.content.replace("\r\n", "\n")) != entity.content:  # browsers send \r\n
            title, _, body = content.partition("\n")
            change_entity(entity, {"title": title, "body": body}, requested_by=cause.actor)
        if others := {*changed} - {"content"}:
            for name in others:
                setattr(entity, name, getattr(atom, name))
            entity.save_edit(cause, update_fields=others)
            refresh_derived([entity])

    def response_add(self, request: HttpRequest, obj: MemoryAtom, post_url_continue: str | None = None) -> HttpResponse:
        """Return to the stream's page."""
        response: HttpResponse = super().response_add(request, obj, post_url_continue)
        is_plain = "_continue" not in request.POST and "_addanother" not in request.POST
        return HttpResponseRedirect(change_url(obj.stream)) if is_plain else response

    # --- the list ---

    in_stream = column("stream.title", "Memory text")
    formed = column("formed_at", "Said", "{:%Y-%m-%d %H:%M}".format)

    @admin.display(description="Kind")
    def sort(self, atom: MemoryAtom) -> str:
        marks = [mark for mark, is_set in (("pinned", atom.is_pinned), ("not released", atom.is_candidate)) if is_set]
        kinds = [atom.kind] if atom.kind != MemoryAtom.Kind.OTHER else []
        return ", ".join([atom.atom_type, *kinds, *marks])

    @display(description="State", label=COLORS)  # type: ignore[untyped-decorator]
    def state_label(self, atom: MemoryAtom) -> tuple[str, str]:
        return atom.state, atom.state_in_words

    @admin.display(description="Used")
    def recalled(self, atom: MemoryAtom) -> str:
        if atom.last_accessed_at is None:
            return "never"
        return f"{atom.access_count}×, last {atom.last_accessed_at:%Y-%m-%d %H:%M}"


class EntityForm(FormPage[Entity]):
    """The page of a task, goal or problem, with the links from others."""

    after = "operator/entities/links.html"

    def context(self) -> dict[str, Any]:
        links = self.row.links_in.select_related("from_entity").order_by("-id")
        may_retract = self.row.is_written and may_retract_directly(self.request)
        return {"entity": self.row, "links_in": links[:LINKS_SHOWN], "may_retract": may_retract}


class EntityFields(ItemFields):
    title = forms.CharField(max_length=1_000, widget=UnfoldAdminTextInputWidget)
    body = forms.CharField(max_length=10_000, required=False, widget=UnfoldAdminTextareaWidget, strip=False)
    kind = forms.ChoiceField(choices=EntityKind.choices, widget=UnfoldAdminSelectWidget)
    status = forms.ChoiceField(choices=EntityStatus.choices, widget=UnfoldAdminSelectWidget)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.update({name: getattr(self.instance, name) for name in ("title", "body", "status")})

    def _post_clean(self) -> None:
        """Don't change the instance here, because `change_entity` changes it and records its former values."""


class EntityKindFilter(admin.SimpleListFilter):
    title, parameter_name = "kind", "kind__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Any]:
        return EntityKind.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Entity]) -> QuerySet[Entity]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class EntityStatusFilter(admin.SimpleListFilter):
    title, parameter_name = "status", "status__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Any]:
        return EntityStatus.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Entity]) -> QuerySet[Entity]:
        rows = cast(EntityQuerySet, queryset)
        return rows.with_status(str(self.value())) if self.value() else rows  # type: ignore[return-value]


class LinkInline(TabularInline):  # type: ignore[misc]
    model = EntityLink
    fk_name = "from_entity"
    fields = ("relation", "to_entity")
    readonly_fields = fields
    extra = 0
    can_delete = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[EntityLink]:
        links: QuerySet[EntityLink] = super().get_queryset(request)
        return links.select_related("to_entity", "from_entity")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Entity)
class EntityAdmin(PageAdmin):
    """A task, a goal or a problem of a person."""

    list_display = ("title", "kind", "status", "user_link", "due_at", "session_link", "changed")
    form = EntityFields
    change_form_before_template = LAST_CHANGE
    session_link = link_column("source_session", "Session")
    list_filter = (EntityKindFilter, EntityStatusFilter, UserFilter, ("due_at", DaysFilter))
    list_select_related = ("user", "source_session")
    sortable_by = ()
    search_fields = ("content",)
    open_lookups = ("user__id__exact",)
    search_help_text = "Words from the title or body, or the start of a user_id"
    ordering = ("-id",)
    fields = (
        "title",
        "body",
        ("kind", "status"),
        "due_at",
        ("user_link", "session_link", "entity_id"),
        ("created_at", "changed"),
    )
    readonly_fields = ("user_link", "session_link", "entity_id", "created_at", "changed")
    inlines = (LinkInline,)
    may_add = False  # only applications add entities
    form_page = EntityForm
    views = (RetractItems,)
    changed = column("updated_at", "Updated at")

    def save_model(self, request: HttpRequest, obj: Entity, form: Any, change: bool) -> None:
        lock_entity(obj)
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        change_entity(self.get_queryset(request).get(pk=obj.pk), values, requested_by=actor_of(request))

    def delete_model(self, request: HttpRequest, obj: Entity) -> None:
        lock_entity(obj)
        delete_entity(obj, requested_by=actor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Entity]) -> None:
        for entity in queryset.order_by("user", "pk"):
            self.delete_model(request, entity)

    def search(self, request: HttpRequest, rows: QuerySet[Entity], term: str) -> QuerySet[Entity]:
        return found_by_words(rows, Entity.objects.matching(term), term)


class KnownPersonForm(FormPage[KnownPerson]):
    """The page of a known person, and the current facts about them."""

    after = "operator/known_people/facts.html"

    def context(self) -> dict[str, Any]:
        if not may_see(self.request, MemoryAtom):
            return {"known_person": self.row, "sees_facts": False}
        facts = MemoryAtom.objects.current().filter(about=self.row).select_related("user")
        shown, more = first_of(facts.defer("search_vector").newest_first(), FACTS_SHOWN)
        return {"known_person": self.row, "sees_facts": True, "facts": shown, "more": more}


@admin.register(KnownPerson)
class KnownPersonAdmin(ReadOnlyAdmin):
    """People as the facts about them describe them. To change a person, correct the facts."""

    list_display = ("name", "relationship", "user_link", "key", "created_at")
    list_filter = (UserFilter,)
    list_select_related = ("user",)
    sortable_by = ()
    search_fields = ("name",)
    search_help_text = "A name, or the start of a user_id"
    when_empty = (
        "No people yet. A person is listed here when a fact names them with their relationship to the user, such as "
        "“sister”."
    )
    ordering = ("-id",)
    form_page = KnownPersonForm
    fields = (("name", "relationship"), "aliases", ("user_link", "key"), "created_at")
    readonly_fields = ("user_link",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[KnownPerson]:
        """Exclude people whose statements were all withdrawn."""
        return super().get_queryset(request).with_statements()  # type: ignore[no-any-return]

    def search(self, request: HttpRequest, rows: QuerySet[KnownPerson], term: str) -> QuerySet[KnownPerson]:
        return found_by_words(rows, KnownPerson.objects.named(term), term)


@admin.register(StoredItem)
class StoredItemAdmin(PageAdmin):
    """Stored items. Operators can read and delete them."""

    list_display = ("key", "labels", "user_link", "updated_at")
    list_filter = (UserFilter,)
    list_select_related = ("user",)
    sortable_by = ()
    search_fields = ("text",)
    search_help_text = "Words from the value, or the start of a user_id"
    when_empty = "No stored items yet. Items that an application puts into the item store are listed here."
    ordering = ("-id",)
    may_add = may_change = False
    fields = ("key", "labels", "value", "user_link", ("created_at", "updated_at"), ("ttl", "expires_at"))
    readonly_fields = ("labels", "user_link")
    labels = column("labels", "Namespace", " / ".join)

    def get_queryset(self, request: HttpRequest) -> QuerySet[StoredItem]:
        queryset: QuerySet[StoredItem] = super().get_queryset(request)
        return queryset.defer("text", "search_vector")

    def search(self, request: HttpRequest, rows: QuerySet[StoredItem], term: str) -> QuerySet[StoredItem]:
        return found_by_words(rows, StoredItem.objects.matching(term), term)
