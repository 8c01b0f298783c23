"""The log of what happened."""

from django.contrib import admin

from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.models import Event


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """What happened, newest first."""

    list_display = ("created_at", "type", "actor", "payload")
    list_filter = ("type",)
    ordering = ("-created_at", "-id")
