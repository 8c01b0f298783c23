"""Keys: made here, shown once, revoked, never edited."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from sessions_app.admin.base import PageAdmin
from sessions_app.models import ApiKey


@admin.register(ApiKey)
class ApiKeyAdmin(PageAdmin):
    """Who may call the API."""

    list_display = ("name", "prefix", "user", "scope", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_filter = ("scope",)
    list_select_related = ("user",)
    search_fields = ("name", "prefix")
    ordering = ("-id",)
    fields = ("name", "user", "scope", "expires_at")
    raw_id_fields = ("user",)
    actions = ("revoke",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # What a key may do is settled when it is made. The list's actions still need the right to change.
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Issues the key and shows its text, this once."""
        key, text = ApiKey.objects.issue(obj.name, user=obj.user, scope=obj.scope, expires_at=obj.expires_at)
        obj.pk, obj.prefix = key.pk, key.prefix
        messages.warning(request, f"The key, shown this once: {text}")

    @admin.action(description="Revoke the selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Ends the keys at once."""
        count = queryset.filter(revoked_at=None).update(revoked_at=timezone.now())
        messages.success(request, f"{count} keys revoked.")
