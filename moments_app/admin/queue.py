"""The queue's own tables, to look at. What matters of a job is in Jobs."""

from django.contrib import admin
from django_q.models import Failure, OrmQ, Schedule, Success
from unfold.admin import ModelAdmin

from sessions_app.admin.base import ReadOnlyAdmin

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
class ScheduleAdmin(ModelAdmin):  # type: ignore[misc]
    """What runs by itself. Set repeats to 0 to pause one."""

    list_display = ("name", "func", "minutes", "repeats", "next_run")
