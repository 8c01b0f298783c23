"""Background work: what waits, runs and failed, why, from what and for what; and what can be done about it."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator
from django.views.decorators.http import require_POST
from unfold.decorators import display

from moments_app.jobs.cancel import cancel
from moments_app.models import Job, StreamVersion
from moments_app.models.job import JobQuerySet
from sessions_app.admin.base import LogAdmin, NewestValuesFilter, one_line
from sessions_app.models import Session, UserProfile

LEFT_SHOWN = 50  # of each kind that a job left
CALLS_SHOWN = 200
FOUND_BY_NAME = 50  # people and sessions whose names begin with what is searched for
STATE_LABELS = {
    "due": "info",
    "waiting": "warning",
    "running": "info",
    "stuck": "danger",
    "completed": "success",
    "failed": "danger",
    "cancelled": "warning",
    "skipped": "",
}
STATES: dict[str, tuple[str, Callable[[JobQuerySet], JobQuerySet]]] = {
    "due": ("Due", lambda jobs: jobs.due()),
    "waiting": ("Waits for a later attempt", lambda jobs: jobs.later()),
    "running": ("Running", lambda jobs: jobs.filter(status=Job.Status.PROCESSING)),
    "stuck": ("Running, but silent", lambda jobs: jobs.stale()),
    "failed": ("Failed", lambda jobs: jobs.filter(status=Job.Status.FAILED)),
    "completed": ("Completed", lambda jobs: jobs.filter(status=Job.Status.COMPLETED)),
    "cancelled": ("Cancelled", lambda jobs: jobs.cancelled()),
    "skipped": ("Skipped, or cancelled", lambda jobs: jobs.filter(status=Job.Status.SKIPPED)),
}

COUNTED = 100  # failed jobs


def failed_jobs(request: HttpRequest) -> str:
    """How many there are, for the sidebar; blank for none."""
    number = Job.objects.filter(status=Job.Status.FAILED)[:COUNTED].count()
    return f"{COUNTED - 1}+" if number == COUNTED else str(number or "")


class StateFilter(admin.SimpleListFilter):
    """What a job's status and times come to."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, title) for name, (title, _) in STATES.items()]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        _, narrowed = STATES.get(self.value() or "", ("", lambda jobs: jobs))
        return narrowed(queryset)


@admin.register(Job)
class JobAdmin(LogAdmin):
    """Jobs with their outcome; what failed can be tried again, what waits or runs be cancelled."""

    list_display = ("what", "state", "about", "why", "asked_at", "took", "asked_by")
    list_filter = (StateFilter, ("process", NewestValuesFilter))
    list_select_related = ("session__user", "user", "stream")
    search_fields = ("job_id",)
    search_help_text = "A whole job_id, or the beginning of a user_id or session_id"
    ordering = ("-id",)
    actions = ("retry", "cancel")
    change_form_outer_before_template = "operator/jobs/job.html"
    when_empty = "Work appears here when an append, a schedule or somebody asks for it."
    fieldsets = (("As it is stored", {"classes": ("collapse",), "fields": ("job_id", "status", "params", "result")}),)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        term = search_term.strip().replace("\0", "")
        return (_found(queryset, term) if term else queryset), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        named = ("session__id__exact", "user__id__exact", "stream__id__exact")
        return lookup in named or super().lookup_allowed(lookup, value, request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<path:pk>/retry/", view(self.retry_one), name="moments_app_job_retry"),
            path("<path:pk>/cancel/", view(self.cancel_one), name="moments_app_job_cancel"),
            *super().get_urls(),
        ]

    def around(self, request: HttpRequest, obj: Job) -> dict[str, Any]:
        """The job told: its state, what it is about, its calls and what it left."""
        return {
            "job": obj,
            "state": state_of(obj),
            "may_change": self.has_steer_permission(request),
            "max_attempts": settings.JOBS.max_attempts,
            "params": _json(obj.params),
            "calls": obj.engine_calls.select_related("prompt_version__resource").order_by("id")[:CALLS_SHOWN],
            "moments": obj.moments.defer("search_vector").order_by("id")[:LEFT_SHOWN],
            "summaries": obj.summaries.order_by("id")[:LEFT_SHOWN],
            "atoms": obj.atoms.order_by("id")[:LEFT_SHOWN],
            "texts": StreamVersion.objects.filter(job=obj).select_related("stream").order_by("id")[:LEFT_SHOWN],
            "result": _json(obj.result),
            "left_shown": LEFT_SHOWN,
        }

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Whoever may change jobs; their rows are changed by nobody."""
        return request.user.has_perm("moments_app.change_job")

    @admin.action(description="Retry the selected jobs that failed or were cancelled", permissions=["steer"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Gives each a new set of attempts; says which could not be retried, and why."""
        for job in queryset:
            self._retry(request, job)

    @admin.action(description="Cancel the selected jobs that are queued or running", permissions=["steer"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Ends each; says which could not be cancelled, and why."""
        for job in queryset:
            self._cancel(request, job)

    @method_decorator(require_POST)
    def retry_one(self, request: HttpRequest, pk: str) -> HttpResponse:
        """The button on a job's page."""
        return self._steered(request, pk, self._retry)

    @method_decorator(require_POST)
    def cancel_one(self, request: HttpRequest, pk: str) -> HttpResponse:
        """The button on a job's page."""
        return self._steered(request, pk, self._cancel)

    def _steered(self, request: HttpRequest, pk: str, do: Callable[[HttpRequest, Job], None]) -> HttpResponse:
        job = get_object_or_404(Job, pk=pk)
        if not self.has_steer_permission(request):
            raise PermissionDenied
        do(request, job)
        return HttpResponseRedirect(reverse("admin:moments_app_job_change", args=[job.pk]))

    def _retry(self, request: HttpRequest, job: Job) -> None:
        self.attempt(request, job, job.restart, log="Retried.", told=f"{job} is queued again.", about=str(job))

    def _cancel(self, request: HttpRequest, job: Job) -> None:
        end = partial(cancel, job, actor=f"operator:{request.user.get_username()}")
        told = f"{job} is cancelled; nothing of it is kept."
        self.attempt(request, job, end, log="Cancelled.", told=told, about=str(job))

    @admin.display(description="Process")
    def what(self, job: Job) -> str:
        return job.process

    @display(description="State", label=STATE_LABELS)  # type: ignore[untyped-decorator]
    def state(self, job: Job) -> str:
        return state_of(job)

    @admin.display(description="About")
    def about(self, job: Job) -> str:
        named = [(part,) for part in (job.user, job.session, job.stream) if part]
        return format_html_join("", '<span class="rem-op-cell rem-op-narrow">{}</span>', named) or "–"

    @admin.display(description="Asked for")
    def asked_at(self, job: Job) -> str:
        return one_line(job.queued_at)

    @admin.display(description="By")
    def asked_by(self, job: Job) -> str:
        return format_html('<span class="rem-op-cell rem-op-narrow">{}</span>', job.requested_by)

    @admin.display(description="Took")
    def took(self, job: Job) -> str:
        if job.started_at is None or job.finished_at is None:
            return "–"
        return f"{(job.finished_at - job.started_at).total_seconds():,.1f} s"

    @admin.display(description="Why")
    def why(self, job: Job) -> str:
        told = job.error or job.result.get("reason", "")
        return format_html('<span class="rem-op-cell">{}</span>', Truncator(told).chars(120))


def state_of(job: Job) -> str:
    """What its status and times come to, as the list's filter calls it."""
    if job.status == Job.Status.QUEUED:
        return "due" if job.is_due else "waiting"
    if job.status == Job.Status.PROCESSING:
        return "stuck" if job.is_stale else "running"
    return "cancelled" if job.is_cancelled else str(job.status)


def _found(jobs: QuerySet[Job], term: str) -> QuerySet[Job]:
    """By its id; else those of the first people and sessions whose names begin so: what indexes serve."""
    digits = term.replace("-", "")
    if len(digits) == 32 and all(character in "0123456789abcdefABCDEF" for character in digits):
        return jobs.filter(job_id=digits)
    people = UserProfile.objects.filter(user_id__startswith=term).values_list("pk", flat=True)[:FOUND_BY_NAME]
    sessions = Session.objects.filter(session_id__startswith=term).values_list("pk", flat=True)[:FOUND_BY_NAME]
    return jobs.filter(user__in=list(people)) | jobs.filter(session__in=list(sessions))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""
