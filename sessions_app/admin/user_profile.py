"""People."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from sessions_app.admin.base import PageAdmin, prefix_search
from sessions_app.models import UserProfile


@admin.register(UserProfile)
class UserProfileAdmin(PageAdmin):
    """The profile of a person, to read and to correct."""

    list_display = ("user_id", "preferred_topics", "timezone", "updated_at")
    search_fields = ("user_id",)
    search_help_text = "The beginning of a user_id"
    ordering = ("-updated_at",)
    readonly_fields = ("user_id", "created_at", "updated_at", "memory")
    fields = (
        "user_id",
        "memory",
        "summary",
        "interests",
        "preferred_topics",
        "timezone",
        "metadata",
        "created_at",
        "updated_at",
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UserProfile], search_term: str
    ) -> tuple[QuerySet[UserProfile], bool]:
        return prefix_search(queryset, search_term, "user_id"), False

    def save_model(self, request: HttpRequest, obj: UserProfile, form: Any, change: bool) -> None:
        UserProfile.objects.locked().get(pk=obj.pk).keep_version(f"operator:{request.user.get_username()}")
        super().save_model(request, obj, form, change)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # made on first use

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # a person's data goes as a whole or not at all

    @admin.display(description="Memory")
    def memory(self, profile: UserProfile) -> str:
        """Ways to what is kept of this person."""
        sessions = reverse("admin:sessions_app_session_changelist")
        moments = reverse("admin:moments_app_moment_changelist")
        return format_html(
            '<a class="rem-link" href="{}?user__id__exact={}">Sessions</a> · '
            '<a class="rem-link" href="{}?user__id__exact={}">Moments</a>',
            sessions,
            profile.pk,
            moments,
            profile.pk,
        )
