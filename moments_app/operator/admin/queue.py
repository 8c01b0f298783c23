"""The schedules of django-q2."""

from typing import Any

import django_q.admin  # noqa: F401 (which has registered what is withdrawn below)
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django_q.models import Failure, Schedule, Success
from unfold.decorators import display

from memoryproject.schedules import PAUSED, UnknownSchedule, is_late, schedule_named, with_runs
from moments_app.models.job import title_of
from sessions_app.admin.base import ReadOnlyAdmin, one_line

FOR_EVER = -1  # of a schedule's repeats

for model in (Failure, Schedule, Success):
    admin.site.unregister(model)


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules. The code defines them; operators can pause and resume them."""

    list_display = ("what", "does", "every", "state", "last_time", "next_time")
    fields = readonly_fields = ("does", "every", "state", "last_time", "next_time")
    ordering = ("name",)
    actions = ("pause", "resume")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_runs(super().get_queryset(request))

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may change schedules to pause and resume them. What they run can't be changed."""
        return request.user.has_perm("django_q.change_schedule")

    @admin.action(description="Pause selected schedules", permissions=["steer"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Pause the schedules until an operator resumes them."""
        self._set_repeats(request, queryset, PAUSED, "Paused.")

    @admin.action(description="Resume selected schedules", permissions=["steer"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Resume the schedules from their next run on."""
        self._set_repeats(request, queryset, FOR_EVER, "Resumed.")

    def _set_repeats(self, request: HttpRequest, queryset: QuerySet[Any], repeats: int, entry: str) -> None:
        for schedule in queryset.exclude(repeats=repeats):
            schedule.repeats = repeats
            schedule.save(update_fields=["repeats"])
            self.log_change(request, schedule, entry)
            messages.success(request, f"{schedule.name}: {entry}")

    @admin.display(description="Schedule", ordering="name")
    def what(self, schedule: Any) -> str:
        return format_html('<span title="{}">{}</span>', schedule.name, title_of(schedule.name))

    @admin.display(description="Purpose")
    def does(self, schedule: Any) -> str:
        try:
            import_string(schedule.func)
            return schedule_named(schedule.name).does
        except (ImportError, UnknownSchedule):
            return "The function of this schedule no longer exists. Run manage.py migrate to update the schedules."

    @admin.display(description="Last run")
    def last_time(self, schedule: Any) -> str:
        return one_line(schedule.last_run)

    @admin.display(description="Next run")
    def next_time(self, schedule: Any) -> str:
        return one_line(schedule.next_run)

    @admin.display(description="Frequency")
    def every(self, schedule: Any) -> str:
        if schedule.schedule_type == Schedule.MINUTES:
            return f"every {schedule.minutes} min"
        return f"{schedule.get_schedule_type_display().lower()} at {schedule.next_run:%H:%M} UTC"

    @display(description="State", label={"on": "success", "paused": "warning", "overdue": "danger"})  # type: ignore[untyped-decorator]
    def state(self, schedule: Any) -> str:
        if schedule.repeats == PAUSED:
            return "paused"
        return "overdue" if is_late(schedule) else "on"
