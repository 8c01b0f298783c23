"""The queue's own tables: what it holds, tasks that ended in an error, and what runs by itself."""

from datetime import timedelta
from typing import Any

import django_q.admin  # noqa: F401 (which has registered what is withdrawn below)
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django_q.models import Failure, OrmQ, Schedule, Success
from unfold.decorators import display

from memoryproject.schedules import UnknownSchedule, schedule_named
from moments_app.models.job import RUN_TASK
from sessions_app.admin.base import ReadOnlyAdmin, one_line

PAUSED, FOR_EVER = 0, -1  # of a schedule's repeats
OVERDUE = timedelta(minutes=2)  # a worker looks at the schedules twice a minute

for model in (Failure, OrmQ, Schedule, Success):
    admin.site.unregister(model)


@admin.register(OrmQ)
class QueueAdmin(ReadOnlyAdmin):
    """Entries that wait, or that a worker has taken. What matters of a job is in Jobs."""

    list_display = ("id", "task", "job", "state", "since")
    when_empty = "The queue is empty."
    fields = readonly_fields = ("task", "job", "state", "since")
    ordering = ("id",)

    @admin.display(description="Task")
    def task(self, entry: OrmQ) -> str:
        return str(entry.func())

    @admin.display(description="Job")
    def job(self, entry: OrmQ) -> str:
        if entry.task.get("func") != RUN_TASK:
            return "–"
        [job_id] = entry.task["args"]
        url = reverse("admin:moments_app_job_changelist")
        return format_html('<a class="rem-link" href="{}?q={}">{}</a>', url, job_id, job_id)

    @display(description="State", label={"waiting": "info", "running": "success"})  # type: ignore[untyped-decorator]
    def state(self, entry: OrmQ) -> str:
        return "running" if entry.lock and entry.lock > timezone.now() else "waiting"

    @admin.display(description="Since, or reserved until")
    def since(self, entry: OrmQ) -> str:
        return one_line(entry.lock)


@admin.register(Failure)
class FailureAdmin(ReadOnlyAdmin):
    """Tasks that ended in an error of their own; a failed job is no such error."""

    list_display = ("task", "ended_at", "last_line")
    when_empty = "No queue task has failed."
    fields = readonly_fields = ("task", "arguments", "ended_at", "traceback")
    ordering = ("-stopped",)

    @admin.display(description="Task")
    def task(self, task: Failure) -> str:
        return str(task.func)

    @admin.display(description="Ended")
    def ended_at(self, task: Failure) -> str:
        return one_line(task.stopped)

    @admin.display(description="Error")
    def last_line(self, task: Failure) -> str:
        lines = str(task.result or "").strip().splitlines()
        return format_html('<span class="rem-op-cell">{}</span>', lines[-1] if lines else "–")

    @admin.display(description="Arguments")
    def arguments(self, task: Failure) -> str:
        return ", ".join(map(str, task.args or ())) or "–"

    @admin.display(description="Full error")
    def traceback(self, task: Failure) -> str:
        return format_html('<pre class="rem-op-error" tabindex="0">{}</pre>', task.result or "–")


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules. The table is the code's; here one is paused, and let run again."""

    list_display = ("name", "does", "every", "state", "next_time")
    fields = readonly_fields = ("does", "every", "state", "next_time")
    ordering = ("name",)
    actions = ("pause", "resume")

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Let whoever may change schedules steer them; what they run is changed by nobody."""
        return request.user.has_perm("django_q.change_schedule")

    @admin.action(description="Pause selected schedules", permissions=["steer"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Keep the schedules from running until somebody lets them."""
        self._set_repeats(request, queryset, PAUSED, "Paused.")

    @admin.action(description="Resume selected schedules", permissions=["steer"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Let the schedules run from their next time on."""
        self._set_repeats(request, queryset, FOR_EVER, "Resumed.")

    def _set_repeats(self, request: HttpRequest, queryset: QuerySet[Any], repeats: int, entry: str) -> None:
        for schedule in queryset.exclude(repeats=repeats):
            schedule.repeats = repeats
            schedule.save(update_fields=["repeats"])
            self.log_change(request, schedule, entry)
            messages.success(request, f"{schedule.name}: {entry}")

    @admin.display(description="Purpose")
    def does(self, schedule: Any) -> str:
        try:
            import_string(schedule.func)
            return schedule_named(schedule.name).does
        except (ImportError, UnknownSchedule):
            return "Its function no longer exists. Run manage.py migrate to update the table."

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
        return "overdue" if schedule.next_run < timezone.now() - OVERDUE else "on"
