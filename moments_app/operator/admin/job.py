"""The list of jobs, the page of a job, and the list of schedules."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import django_q.admin  # noqa: F401 (registers the models that are unregistered below)
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.module_loading import import_string
from django.utils.text import Truncator, capfirst
from django_q.models import Failure, Schedule, Success
from unfold.decorators import display

from memoryproject.schedules import PAUSED, UnknownSchedule, is_late, schedule_named, with_runs
from moments_app.jobs.runner import cancel
from moments_app.models import Job
from moments_app.models.job import JobQuerySet, title_of
from sessions_app.admin.base import LogAdmin, NewestValuesFilter, ReadOnlyAdmin, RequestedAdmin, time_cell
from sessions_app.admin.event import FORMATTERS
from sessions_app.admin.links import change_url, column
from sessions_app.admin.views import FormPage, RowAction
from sessions_app.models import Session, UserProfile
from sessions_app.models.event import named_actor
from sessions_app.people.provenance import declared

FOUND_BY_NAME = 50  # maximum number of people, and of sessions, that a search by name returns
STATE_LABELS = {
    "due": "info",
    "waiting": "warning",
    "held": "warning",
    "running": "info",
    "stuck": "danger",
    "completed": "success",
    "failed": "danger",
    "cancelled": "warning",
    "skipped": "",
}
STATES: dict[str, tuple[str, Callable[[JobQuerySet], JobQuerySet]]] = {
    "due": ("Due", lambda jobs: jobs.due()),
    "waiting": ("Waiting for retry", lambda jobs: jobs.later()),
    "held": ("Held by a circuit", lambda jobs: jobs.held()),
    "running": ("Running", lambda jobs: jobs.filter(status=Job.Status.PROCESSING)),
    "stuck": ("Stuck: no heartbeat", lambda jobs: jobs.stale()),
    "failed": ("Failed", lambda jobs: jobs.filter(status=Job.Status.FAILED)),
    "completed": ("Completed", lambda jobs: jobs.filter(status=Job.Status.COMPLETED)),
    "cancelled": ("Cancelled", lambda jobs: jobs.cancelled()),
    "skipped": ("Skipped or cancelled", lambda jobs: jobs.filter(status=Job.Status.SKIPPED)),
}
COUNTED = 100  # maximum failed jobs to count
ROWS_SHOWN = 50  # maximum rows of each kind to show
CALLS_SHOWN = 200
# For each process, the session's field with the last processed turn.
PROGRESS = {"build_moments": "built_to", "form_memories": "formed_to", "roll_summary": "summarized_to"}
UNLIMITED = -1  # value of `Schedule.repeats`

FORMATTERS["process"] = title_of


def state_of(job: Job) -> str:
    """Return the job's state, as a key of `STATES`."""
    if job.status == Job.Status.QUEUED:
        return "held" if job.is_held else "due" if job.is_due else "waiting"
    if job.status == Job.Status.PROCESSING:
        return "stuck" if job.is_stale else "running"
    return "cancelled" if job.is_cancelled else str(job.status)


class JobForm(FormPage[Job]):
    """A job's state, its subject, its calls and its results."""

    before = "operator/jobs/job.html"

    def context(self) -> dict[str, Any]:
        job = self.row
        calls = job.engine_calls.select_related("prompt_version__resource")
        return {
            "job": job,
            "requested_by": named_actor(job.requested_by, getattr(job, "key_name", "")),
            "state": state_of(job),
            "may_change": self.admin.has_steer_permission(self.request),
            "max_attempts": settings.JOBS.max_attempts,
            "params": _json(job.params),
            "calls": self.visible(calls).order_by("id")[:CALLS_SHOWN],
            "created": list(self._created()),
            "result": _json(job.result),
            "unread": unread_turns(job),
            "rows_shown": ROWS_SHOWN,
        }

    def _created(self) -> Iterator[tuple[str, list[tuple[str, Model]]]]:
        """Yield pairs of a table's title and the rows created by the job, each row with its URL."""
        for table in (each.model for each in declared() if each.processes and admin.site.is_registered(each.model)):
            if any(column.name == "job" for column in table._meta.concrete_fields):
                created = self.visible(table._default_manager.filter(job=self.row)).order_by("pk")
                if rows := [(change_url(row), row) for row in created[:ROWS_SHOWN]]:
                    yield capfirst(str(table._meta.verbose_name_plural)), rows


class RetryJob(RowAction[Job]):
    """Give a failed or canceled job a new set of attempts."""

    route, name, permission = "<path:pk>/retry/", "retry", "steer"

    def change(self, job: Job) -> str:
        self.attempt(job, job.restart, log="Retried.", message=f"{job} is queued again.")
        return change_url(job)


class CancelJob(RowAction[Job]):
    """Cancel a queued or running job."""

    route, name, permission = "<path:pk>/cancel/", "cancel", "steer"

    def change(self, job: Job) -> str:
        message = f"{job} is cancelled, and its results are discarded."
        end = partial(cancel, job, actor=self.actor)
        self.attempt(job, end, log="Cancelled.", message=message)
        return change_url(job)


def unread_turns(job: Job) -> tuple[int, int] | None:
    """Return the first and the last unprocessed turn of the job's session.

    Return None if all turns are processed, or if this can't be determined.
    """
    session = job.session
    if session is None or job.process not in PROGRESS or job.status == Job.Status.COMPLETED:
        return None
    first = getattr(session, PROGRESS[job.process]) + 1
    return (first, session.last_sequence) if first <= session.last_sequence else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""


def failed_count(request: HttpRequest) -> str:
    """Return the number of failed jobs for the sidebar. Blank if there are none."""
    number = Job.objects.filter(status=Job.Status.FAILED)[:COUNTED].count()
    return f"{COUNTED - 1}+" if number == COUNTED else str(number or "")


class TitleFilter(NewestValuesFilter):
    """A filter that shows a title instead of each value; `title_of` returns it."""

    title_of: Callable[[str], str] = staticmethod(title_of)

    def choices(self, changelist: Any) -> Iterator[Any]:
        every, *values = super().choices(changelist)
        yield every
        yield from ({**each, "display": self.title_of(str(each["display"]))} for each in values)


class StateFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, title) for name, (title, _) in STATES.items()]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        _, with_state = STATES.get(self.value() or "", ("", lambda jobs: jobs))
        return with_state(queryset)


@admin.register(Job)
class JobAdmin(RequestedAdmin, LogAdmin):
    """Jobs with their outcome. Failed jobs can be retried, and open ones canceled."""

    list_display = ("process_title", "state", "about", "reason", "queued", "duration", "by")
    list_filter = (StateFilter, ("process", TitleFilter))
    shows_personal_data = False
    list_select_related = ("session__user", "user", "stream")
    search_fields = ("job_id",)
    open_lookups = (
        "session__id__exact",
        "user__id__exact",
        "stream__id__exact",
        "circuit__id__exact",
        "failure__id__exact",
    )
    search_help_text = "A full job_id, or the start of a user_id or session_id"
    ordering = ("-id",)
    actions = ("retry", "cancel")
    form_page = JobForm
    views = (RetryJob, CancelJob)
    when_empty = "No jobs yet. New messages, schedules and operators queue jobs."
    fieldsets = (
        ("Raw data", {"classes": ("collapse",), "fields": ("job_id", "status", "worker", "params", "result")}),
    )
    retry = RetryJob.for_selected(
        "Retry selected jobs that failed or were cancelled",
        button="Retry these jobs",
        warning="Failed and cancelled jobs are queued again now, with a new set of attempts.",
    )
    cancel = CancelJob.for_selected(
        "Cancel selected queued or running jobs",
        button="Cancel these jobs",
        warning="Queued and running jobs end as cancelled, and their results are discarded.",
    )
    queued = column("queued_at", "Queued", time_cell)

    def search(self, request: HttpRequest, rows: QuerySet[Job], term: str) -> QuerySet[Job]:
        """Find jobs by job id, or by the prefix of a `user_id` or `session_id`. These searches use indexes."""
        digits = term.replace("-", "")
        if len(digits) == 32 and all(character in "0123456789abcdefABCDEF" for character in digits):
            return rows.filter(job_id=digits)
        people = UserProfile.objects.filter(user_id__startswith=term).values_list("pk", flat=True)[:FOUND_BY_NAME]
        sessions = Session.objects.filter(session_id__startswith=term).values_list("pk", flat=True)[:FOUND_BY_NAME]
        return rows.filter(user__in=list(people)) | rows.filter(session__in=list(sessions))

    @admin.display(description="Process")
    def process_title(self, job: Job) -> str:
        return format_html('<span title="{}">{}</span>', job.process, job.title)

    @display(description="State", label=STATE_LABELS)  # type: ignore[untyped-decorator]
    def state(self, job: Job) -> str:
        return state_of(job)

    @admin.display(description="About")
    def about(self, job: Job) -> str:
        shared = job.stream.name if job.stream else ""  # only shared memories have a name
        named = [(part,) for part in (job.user, job.session, shared) if part]
        return format_html_join("", '<span class="rem-op-cell rem-op-narrow">{}</span>', named) or "–"

    @admin.display(description="By")
    def by(self, job: Any) -> str:
        actor = named_actor(job.requested_by, job.key_name)
        return format_html('<span class="rem-op-cell rem-op-narrow">{}</span>', actor)

    @admin.display(description="Duration")
    def duration(self, job: Job) -> str:
        if job.started_at is None or job.finished_at is None:
            return "–"
        return f"{(job.finished_at - job.started_at).total_seconds():,.1f} s"

    @admin.display(description="Error or reason")
    def reason(self, job: Job) -> str:
        reason = job.error or job.result.get("reason", "")
        return format_html('<span class="rem-op-cell">{}</span>', Truncator(reason).chars(120))


for model in (Failure, Schedule, Success):
    admin.site.unregister(model)


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules. The code defines them; operators can pause and resume them."""

    list_display = ("title", "purpose", "frequency", "state", "last_time", "next_time")
    fields = readonly_fields = ("purpose", "frequency", "state", "last_time", "next_time")
    ordering = ("name",)
    actions = ("pause", "resume")
    last_time = column("last_run", "Last run", time_cell)
    next_time = column("next_run", "Next run", time_cell)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_runs(super().get_queryset(request))

    @admin.action(description="Pause selected schedules", permissions=["steer"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._set_repeats(request, queryset, PAUSED, "Paused.")

    @admin.action(description="Resume selected schedules", permissions=["steer"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._set_repeats(request, queryset, UNLIMITED, "Resumed.")

    def _set_repeats(self, request: HttpRequest, queryset: QuerySet[Any], repeats: int, entry: str) -> None:
        for schedule in queryset.exclude(repeats=repeats):
            schedule.repeats = repeats
            schedule.save(update_fields=["repeats"])
            self.log_change(request, schedule, entry)
            messages.success(request, f"{schedule.name}: {entry}")

    @admin.display(description="Schedule", ordering="name")
    def title(self, schedule: Any) -> str:
        return format_html('<span title="{}">{}</span>', schedule.name, title_of(schedule.name))

    @admin.display(description="Purpose")
    def purpose(self, schedule: Any) -> str:
        try:
            import_string(schedule.func)
            return schedule_named(schedule.name).does
        except (ImportError, UnknownSchedule):
            return "The function of this schedule no longer exists. Run manage.py migrate to update the schedules."

    @admin.display(description="Frequency")
    def frequency(self, schedule: Any) -> str:
        if schedule.schedule_type == Schedule.MINUTES:
            return f"every {schedule.minutes} min"
        return f"{schedule.get_schedule_type_display().lower()} at {schedule.next_run:%H:%M} UTC"

    @display(  # type: ignore[untyped-decorator]
        description="State", label={"on": "success", "paused": "warning", "overdue": "danger"}
    )
    def state(self, schedule: Any) -> str:
        if schedule.repeats == PAUSED:
            return "paused"
        return "overdue" if is_late(schedule) else "on"
