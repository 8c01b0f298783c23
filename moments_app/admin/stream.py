"""Memory streams, what is in them, and the versions of their text."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import TabularInline

from moments_app.admin.recall_console import RecallConsole
from moments_app.models import Job, MemoryAtom, MemoryStream, StreamVersion
from moments_app.processes import consolidate
from moments_app.processes.base import has_grown
from sessions_app.admin.base import PageAdmin, prefix_search


class VersionInline(TabularInline):  # type: ignore[misc]
    """Consolidations, newest first."""

    model = StreamVersion
    fields = ("created_at", "content_before", "content_after", "engine", "undone_at")
    readonly_fields = fields
    extra = 0
    per_page = 10
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(MemoryStream)
class MemoryStreamAdmin(PageAdmin):
    """A stream: what it takes in, its limits, its text. New ones are shards; the others appear by themselves."""

    list_display = ("label", "agent_id", "user", "session", "is_active", "last_updated_at")
    list_filter = ("stream_type", "is_active")
    list_select_related = ("user", "session")
    search_fields = ("name",)
    search_help_text = "The beginning of a shard's name, an agent_id, user_id or session_id"
    ordering = ("-id",)
    inlines = (VersionInline,)
    actions = ("fold", "undo")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("name", "agent_id", "is_active"),
                    ("user", "session"),
                    "pinned_content",
                    "consolidated_content",
                )
            },
        ),
        (
            "What it takes in",
            {
                "fields": (
                    "extraction_prompt",
                    ("extracts_observations", "observation_min", "observation_max", "observation_max_words"),
                    ("extracts_facts", "fact_min", "fact_max", "fact_max_words"),
                    "fact_buffer_max",
                )
            },
        ),
        (
            "Its text",
            {
                "fields": (
                    "consolidation_prompt",
                    ("consolidation_trigger", "consolidated_max_words", "consolidation_model"),
                )
            },
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: MemoryStream | None = None) -> tuple[str, ...]:
        return ("name", "agent_id", "user", "session") if obj else ("user", "session")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[MemoryStream], search_term: str
    ) -> tuple[QuerySet[MemoryStream], bool]:
        found = prefix_search(queryset, search_term, "name", "agent_id", "user__user_id", "session__session_id")
        return found, False

    def save_model(self, request: HttpRequest, obj: MemoryStream, form: Any, change: bool) -> None:
        """A new one is a shard; a changed one is fresh in every context."""
        if not change:
            obj.stream_type = MemoryStream.Type.AGENT
        obj.last_updated_at = timezone.now()
        super().save_model(request, obj, form, change)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # switched off, not deleted: what it holds has sources

    def has_fold_permission(self, request: HttpRequest) -> bool:
        """Whoever may change streams."""
        return request.user.has_perm("moments_app.change_memorystream")

    @admin.action(description="Consolidate the selected streams", permissions=["fold"])
    def fold(self, request: HttpRequest, queryset: QuerySet[MemoryStream]) -> None:
        """Asks for it, however few observations wait."""
        by = f"operator:{request.user}"
        for stream in queryset:
            job = Job.objects.request(consolidate.NAME, stream=stream, requested_by=by, force=True)
            messages.success(request, f"{stream}: asked for, job {job.job_id}.")

    @admin.action(description="Undo the last consolidation of the selected streams", permissions=["fold"])
    def undo(self, request: HttpRequest, queryset: QuerySet[MemoryStream]) -> None:
        """Takes it back; says where it can't."""
        for stream in queryset:
            try:
                consolidate.undo(stream)
            except ValueError as error:
                messages.error(request, f"{stream}: {error}")
            else:
                self.log_change(request, stream, "Undid the last consolidation.")
                messages.success(request, f"{stream}: the text is as before.")


@admin.register(MemoryAtom)
class MemoryAtomAdmin(RecallConsole):
    """Items with where they come from. What an operator writes is pinned: kept word for word."""

    list_display = ("content", "atom_type", "state", "stream", "user", "formed_at", "is_pinned", "access_count")
    list_filter = ("atom_type", "state", "is_pinned")
    list_select_related = ("stream", "user")
    search_fields = ("content",)
    search_help_text = "The beginning of a user_id"
    ordering = ("-id",)
    raw_id_fields = ("stream",)
    fields = (
        ("stream", "atom_type"),
        "content",
        ("state", "is_pinned"),
        "formed_at",
        ("user", "source_session", "engine", "prompt_version", "job"),
        ("absorbed_in", "access_count", "last_accessed_at", "created_at"),
    )
    provenance = (
        "user",
        "source_session",
        "engine",
        "prompt_version",
        "job",
        "absorbed_in",
        "access_count",
        "last_accessed_at",
        "created_at",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: MemoryAtom | None = None) -> tuple[str, ...]:
        return (*self.provenance, "stream", "atom_type") if obj else self.provenance

    def get_fields(self, request: HttpRequest, obj: MemoryAtom | None = None) -> Any:
        return self.fields if obj else self.fields[:4]

    def save_model(self, request: HttpRequest, obj: MemoryAtom, form: Any, change: bool) -> None:
        """What an operator wrote is pinned, and stands in the next context."""
        if not change:
            obj.user_id = obj.stream.user_id
        if not change or "content" in form.changed_data:
            obj.is_pinned = True
        super().save_model(request, obj, form, change)
        is_fact = obj.atom_type == MemoryAtom.Type.FACT
        has_grown(obj.stream, has_facts=is_fact, requested_by=f"operator:{request.user}")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # evicted, not deleted: what memory said has to be found again

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[MemoryAtom], search_term: str
    ) -> tuple[QuerySet[MemoryAtom], bool]:
        return prefix_search(queryset, search_term, "user__user_id"), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "stream__id__exact" or super().lookup_allowed(lookup, value, request)
