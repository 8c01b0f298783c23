"""Background work, and what its calls of a model cost."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from moments_app.models import EngineCall, Job
from sessions_app.admin.base import ReadOnlyAdmin

COUNTED = 100  # failed jobs


def failed_jobs(request: HttpRequest) -> str:
    """How many there are, for the sidebar; blank for none."""
    number = Job.objects.filter(status=Job.Status.FAILED)[:COUNTED].count()
    return f"{COUNTED - 1}+" if number == COUNTED else str(number or "")


class EngineCallInline(TabularInline):  # type: ignore[misc]
    """The calls of one job."""

    model = EngineCall
    extra = 0
    can_delete = False
    fields = ("created_at", "engine", "ok", "error_kind", "error", "input_tokens", "output_tokens", "latency_ms")
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """Jobs with their outcome; failed ones can be tried again."""

    list_display = ("job_id", "process", "status", "session", "user", "attempts", "queued_at", "finished_at", "error")
    list_filter = ("status", "process")
    list_select_related = ("session", "user")
    search_fields = ("job_id",)
    search_help_text = "A whole job_id"
    ordering = ("-id",)
    inlines = (EngineCallInline,)
    actions = ("retry",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        term = search_term.strip().replace("-", "")
        is_id = len(term) == 32 and all(character in "0123456789abcdefABCDEF" for character in term)
        return (queryset.filter(job_id=term) if is_id else queryset.none()) if term else queryset, False

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whoever may change jobs."""
        return request.user.has_perm("moments_app.change_job")

    @admin.action(description="Retry the selected failed jobs", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Gives each a new set of attempts; says which could not be retried, and why."""
        for job in queryset:
            try:
                job.restart()
            except ValueError as error:
                messages.error(request, f"{job}: {error}")
            else:
                messages.success(request, f"{job} is queued again.")


@admin.register(EngineCall)
class EngineCallAdmin(ReadOnlyAdmin):
    """Calls of a model: how they ended, how long they took, what they used."""

    list_display = (
        "created_at",
        "purpose",
        "engine",
        "ok",
        "error_kind",
        "input_tokens",
        "output_tokens",
        "latency_ms",
    )
    list_filter = ("ok", "error_kind", "purpose")
    ordering = ("-id",)
    raw_id_fields = ("job",)
