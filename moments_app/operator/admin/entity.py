"""Tasks, goals and problems: the list, and the form of an entity with its links."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from moments_app.models import Entity, EntityLink
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.rights import may_retract_directly
from moments_app.operator.views.retraction import RetractEntity
from sessions_app.admin.base import DaysFilter, PageAdmin, found_by
from sessions_app.admin.links import link_column
from sessions_app.admin.views.base import FormPage

LINKS_SHOWN = 100


class EntityForm(FormPage[Entity]):
    """The page of an entity, with its author and the links that lead to it."""

    after = "operator/entities/links.html"

    def context(self) -> dict[str, Any]:
        links = self.row.links_in.select_related("from_entity").defer("from_entity__search_vector").order_by("-id")
        may_retract = may_retract_directly(self.request)
        return {"entity": self.row, "links_in": links[:LINKS_SHOWN], "may_retract": may_retract}


class LinkInline(TabularInline):  # type: ignore[misc]
    """The links from an entity to others."""

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

    list_display = ("title", "kind", "status", "user_link", "due_at", "session_link", "updated_at")
    session_link = link_column("source_session", "Session")
    list_filter = ("kind", "status", UserFilter, ("due_at", DaysFilter))
    list_select_related = ("user", "source_session")
    search_fields = ("title",)
    open_lookups = ("user__id__exact",)
    search_help_text = "Words from the title or body, or the start of a user_id"
    ordering = ("-id",)
    fields = (
        "title",
        "body",
        ("kind", "status"),
        "due_at",
        ("user_link", "session_link", "entity_id"),
        ("created_at", "updated_at"),
    )
    readonly_fields = ("user_link", "session_link", "entity_id", "created_at", "updated_at")
    inlines = (LinkInline,)
    form_page = EntityForm
    views = (RetractEntity,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Entity]:
        queryset: QuerySet[Entity] = super().get_queryset(request)
        return queryset.defer("search_vector")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Entity], search_term: str
    ) -> tuple[QuerySet[Entity], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        by_words = queryset.filter(pk__in=Entity.objects.matching(term).values("pk"))
        return found_by(queryset, by_words, queryset.filter(user__user_id__startswith=term)), False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # only applications add entities, for people they know
