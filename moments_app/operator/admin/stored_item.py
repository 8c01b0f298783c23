"""The list of items that applications stored, and the page of an item."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from moments_app.models import StoredItem
from moments_app.operator.admin.filters import UserFilter
from sessions_app.admin.base import PageAdmin, found_by


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
    fields = ("key", "labels", "value", "user_link", ("created_at", "updated_at"))
    readonly_fields = ("labels", "user_link")

    def get_queryset(self, request: HttpRequest) -> QuerySet[StoredItem]:
        queryset: QuerySet[StoredItem] = super().get_queryset(request)
        return queryset.defer("text", "search_vector")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[StoredItem], search_term: str
    ) -> tuple[QuerySet[StoredItem], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        by_words = queryset.filter(pk__in=StoredItem.objects.matching(term).values("pk"))
        return found_by(queryset, by_words, queryset.filter(user__user_id__startswith=term)), False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: StoredItem | None = None) -> bool:
        return False

    @admin.display(description="Namespace")
    def labels(self, item: StoredItem) -> str:
        return " / ".join(item.labels)
