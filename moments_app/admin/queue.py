"""The queue's own tables, to look at. What matters of a job is in Jobs."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django_q.models import Failure, OrmQ, Schedule, Success

from sessions_app.admin.base import PageAdmin, ReadOnlyAdmin

for model in (Failure, OrmQ, Schedule, Success):
    admin.site.unregister(model)


@admin.register(OrmQ)
class QueueAdmin(ReadOnlyAdmin):
    """Entries that wait, or that a worker has taken."""

    list_display = ("id", "name", "func", "lock")
    fields = ("key", "lock")


@admin.register(Failure)
class FailureAdmin(ReadOnlyAdmin):
    """Tasks that ended in an error of their own; a failed job is no such error."""

    list_display = ("name", "func", "started", "stopped")


@admin.register(Schedule)
class ScheduleAdmin(PageAdmin):
    """What runs by itself. Set repeats to 0 to pause one.

    Nothing else is changed here: what a schedule names is run by workers, and stands in `memoryproject.schedules`.
    """

    list_display = ("name", "func", "minutes", "repeats", "next_run")
    fields = ("name", "func", ("schedule_type", "minutes"), "repeats", "next_run")
    readonly_fields = ("name", "func", "schedule_type", "minutes")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # the next `migrate` would make it again
