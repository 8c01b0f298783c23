"""Tasks, goals and problems, with their links."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from moments_app.models import ContextReceipt, Entity, EntityLink
from sessions_app.admin.base import PageAdmin, ReadOnlyAdmin, prefix_search


class LinkInline(TabularInline):  # type: ignore[misc]
    """What an entity blocks, is part of, or relates to."""

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
    """What a person wants, has to do, or struggles with."""

    list_display = ("title", "kind", "status", "user", "due_at", "source_session", "updated_at")
    list_filter = ("kind", "status")
    list_select_related = ("user", "source_session")
    search_fields = ("title",)
    search_help_text = "Words of title or body, or the beginning of a user_id"
    ordering = ("-id",)
    fields = (
        ("kind", "status", "due_at"),
        "title",
        "body",
        ("user", "source_session"),
        ("entity_id", "created_at", "updated_at"),
    )
    readonly_fields = ("user", "source_session", "entity_id", "created_at", "updated_at")
    inlines = (LinkInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Entity]:
        queryset: QuerySet[Entity] = super().get_queryset(request)
        return queryset.defer("search_vector")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Entity], search_term: str
    ) -> tuple[QuerySet[Entity], bool]:
        if not search_term.strip():
            return queryset, False
        by_words = Entity.objects.matching(search_term.replace("\0", ""))
        return prefix_search(queryset, search_term, "user__user_id") | queryset.filter(pk__in=by_words), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "user__id__exact" or super().lookup_allowed(lookup, value, request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # the application adds them, for a person it knows


@admin.register(ContextReceipt)
class ContextReceiptAdmin(ReadOnlyAdmin):
    """What went into the contexts that were served."""

    list_display = ("created_at", "session", "user", "context_id", "tokens")
    list_select_related = ("session", "user")
    search_fields = ("context_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-created_at", "-id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ContextReceipt], search_term: str
    ) -> tuple[QuerySet[ContextReceipt], bool]:
        return prefix_search(queryset, search_term, "session__session_id", "user__user_id"), False
