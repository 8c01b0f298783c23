"""The list, and its entry in the sidebar."""

from django.contrib import admin

from memoryproject.admin_menu import Entry, add_entry
from sessions_app.admin.base import ReadOnlyAdmin
from tests.support.promises_app.models import Promise

add_entry("promises_app.promise", Entry("promise", "promises", "handshake"), after="moments_app.moment")


@admin.register(Promise)
class PromiseAdmin(ReadOnlyAdmin):
    """Promises of people."""

    list_display = ("text", "user_link", "created_at")
    list_select_related = ("user",)
    ordering = ("-id",)
