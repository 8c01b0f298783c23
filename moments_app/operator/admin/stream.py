"""Memory streams: what is in one, when it is consolidated, and the versions of its text."""

from dataclasses import asdict
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST
from unfold.paginator import InfinitePaginator
from unfold.views import ChangeList

from moments_app.models import Job, MemoryAtom, MemoryStream, StreamVersion
from moments_app.models.stream import SHARD_DEFAULTS
from moments_app.operator.admin.diff import word_diff
from moments_app.streams import consolidate
from sessions_app.admin.base import PageAdmin, prefix_search

PAGE = 20  # items, or versions
COUNTED = 500  # items of a kind in a stream
TITLES = {MemoryAtom.Type.OBSERVATION.value: "Observations that wait", MemoryAtom.Type.FACT.value: "Facts"}


class ShardForm(forms.ModelForm):  # type: ignore[type-arg]
    """A new shard: it needs a name, which its agent has none of yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.instance.stream_type = MemoryStream.Type.AGENT
        self.fields["name"].required = True

    def clean(self) -> dict[str, Any]:
        """What the database would refuse, in words."""
        asked: dict[str, Any] = super().clean() or {}
        shards = MemoryStream.objects.filter(stream_type=MemoryStream.Type.AGENT, agent_id=asked.get("agent_id", ""))
        if shards.filter(name=asked.get("name")).exists():
            self.add_error("name", "The agent has a shard of this name.")
        return asked


class StreamList(ChangeList):  # type: ignore[misc]
    """The list with its figures, read for the rows shown: a later page would else have them for all rows before it."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        shown = MemoryStream.objects.filter(pk__in=[stream.pk for stream in self.result_list])
        self.result_list = shown.select_related("user", "session").with_figures(COUNTED).order_by("-pk")


@admin.register(MemoryStream)
class MemoryStreamAdmin(PageAdmin):
    """A stream: what it takes in, its limits, its text. New ones are shards; the others appear by themselves."""

    list_display = (
        "of_type",
        "agent",
        "user",
        "session",
        "is_active",
        "waiting_count",
        "fact_count",
        "consolidated",
    )
    list_filter = ("stream_type", "is_active")
    paginator = InfinitePaginator
    sortable_by = ()
    search_fields = ("name",)
    search_help_text = "The beginning of a shard's name, an agent_id, user_id or session_id"
    ordering = ("-id",)
    when_empty = "Streams appear with the first conversations. Shards are made here, or over the API."
    actions = ("fold", "undo")
    change_form_outer_before_template = "operator/streams/stream.html"
    fieldsets = (
        ("Edit the text", {"classes": ("collapse",), "fields": ("pinned_content", "consolidated_content")}),
        (
            "What it takes in",
            {
                "classes": ("collapse",),
                "fields": (
                    "is_active",
                    "extraction_prompt",
                    ("extracts_observations", "observation_min", "observation_max", "observation_max_words"),
                    ("extracts_facts", "fact_min", "fact_max", "fact_max_words"),
                    "fact_buffer_max",
                ),
            },
        ),
        (
            "How it is consolidated",
            {
                "classes": ("collapse",),
                "fields": (
                    "consolidation_prompt",
                    ("consolidation_trigger", "consolidated_max_words", "consolidation_model"),
                ),
            },
        ),
    )
    add_fieldsets = (
        ("A shard: memory that all users of an agent share", {"fields": (("name", "agent_id"),)}),
        *((name, {"fields": options["fields"]}) for name, options in fieldsets[1:]),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StreamList]:
        return StreamList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> MemoryStream | None:
        """With its figures."""
        stream: MemoryStream | None = super().get_object(request, object_id, from_field)
        figures = MemoryStream.objects.select_related("user", "session").with_figures(COUNTED)
        return figures.get(pk=stream.pk) if stream else None

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[MemoryStream], search_term: str
    ) -> tuple[QuerySet[MemoryStream], bool]:
        found = prefix_search(queryset, search_term, "name", "agent_id", "user__user_id", "session__session_id")
        return found, False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in ("session__id__exact", "user__id__exact") or super().lookup_allowed(lookup, value, request)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, **kwargs if obj else kwargs | {"form": ShardForm})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """What a shard begins with over the API too."""
        initial: dict[str, Any] = super().get_changeform_initial_data(request)
        return asdict(SHARD_DEFAULTS) | initial

    def save_model(self, request: HttpRequest, obj: MemoryStream, form: Any, change: bool) -> None:
        """Saves what was edited and nothing else, fresh in every context: the text may have been consolidated since."""
        obj.last_updated_at = timezone.now()
        obj.save(update_fields=[*form.changed_data, "last_updated_at"] if change else None)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # switched off, not deleted: what it holds has sources

    def has_fold_permission(self, request: HttpRequest) -> bool:
        """Whoever may change streams."""
        return request.user.has_perm("moments_app.change_memorystream")

    # --- the list ---

    @admin.display(description="Stream")
    def of_type(self, stream: MemoryStream) -> str:
        return stream.label

    @admin.display(description="Agent")
    def agent(self, stream: MemoryStream) -> str:
        return stream.agent_id or "every agent"

    @admin.display(description="Waiting")
    def waiting_count(self, stream: MemoryStream) -> str:
        waiting = _counted(stream.waiting)  # type: ignore[attr-defined]
        return f"{waiting} of {stream.consolidation_trigger}" if stream.consolidation_prompt else waiting

    @admin.display(description="Facts")
    def fact_count(self, stream: MemoryStream) -> str:
        return _counted(stream.facts)  # type: ignore[attr-defined]

    @admin.display(description="Last consolidated", empty_value="never")
    def consolidated(self, stream: MemoryStream) -> Any:
        return stream.consolidated_at  # type: ignore[attr-defined]

    @admin.action(description="Consolidate the selected streams", permissions=["fold"])
    def fold(self, request: HttpRequest, queryset: QuerySet[MemoryStream]) -> None:
        """Asks for it, however few observations wait."""
        for stream in queryset:
            self._fold(request, stream)

    @admin.action(description="Undo the last consolidation of the selected streams", permissions=["fold"])
    def undo(self, request: HttpRequest, queryset: QuerySet[MemoryStream]) -> None:
        """Takes it back; says where it can't."""
        for stream in queryset:
            self._undo(request, stream)

    # --- the page of one ---

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, "moments_app_memorystream"
        return [
            path("<int:pk>/consolidate/", view(self.fold_view), name=f"{name}_consolidate"),
            path("<int:pk>/undo/", view(self.undo_view), name=f"{name}_undo"),
            path("<int:pk>/items/<str:kind>/", view(self.items), name=f"{name}_items"),
            path("<int:pk>/versions/", view(self.versions), name=f"{name}_versions"),
            path("<int:pk>/versions/<int:version>/", view(self.version), name=f"{name}_version"),
            *super().get_urls(),
        ]

    def around(self, request: HttpRequest, obj: MemoryStream) -> dict[str, Any]:
        """What is in it, when it is consolidated next, and the newest versions."""
        job = obj.jobs.filter(process=consolidate.NAME).order_by("-id").first()
        last = consolidate.last_version(obj)
        return {
            "show_save_and_add_another": False,
            "stream": obj,
            "lines": consolidate.current_lines(obj),
            "words": len(obj.consolidated_content.split()),
            "when": _when(obj),
            "job": job if job and job.status in (*Job.OPEN, Job.Status.FAILED) else None,
            "sections": [_page_of(obj, kind) | {"title": title} for kind, title in TITLES.items()],
            "may_change": self.has_change_permission(request, obj),
            "may_add": request.user.has_perm("moments_app.add_memoryatom"),
            "last": last,
            "is_edited": last is not None and last.content_after != obj.consolidated_content,
        } | _versions_of(obj)

    def items(self, request: HttpRequest, pk: int, kind: str) -> HttpResponse:
        """A page of its items: for a page that shows the ones before, or by itself."""
        stream = self._shown(request, pk)
        if kind not in TITLES:
            raise Http404
        after = request.GET.get("after", "")
        atom = stream.atoms.filter(pk=after).first() if after.isdecimal() else None
        found = _page_of(stream, kind, after=atom) | {"stream": stream, "title": f"{TITLES[kind]} of {stream.title}"}
        return self._more(request, "items", found)

    def versions(self, request: HttpRequest, pk: int) -> HttpResponse:
        """A page of its versions: for a page that shows the ones before, or by itself."""
        stream = self._shown(request, pk)
        before = request.GET.get("before", "")
        found = _versions_of(stream, before=int(before) if before.isdecimal() else None)
        return self._more(request, "versions", found | {"stream": stream, "title": f"Versions of {stream.title}"})

    def version(self, request: HttpRequest, pk: int, version: int) -> HttpResponse:
        """What one consolidation made of the text, and of what."""
        stream = self._shown(request, pk)
        shown = get_object_or_404(stream.versions.select_related("job"), pk=version)
        parts = word_diff(shown.content_before, shown.content_after)
        calls = shown.job.engine_calls.select_related("prompt_version__resource") if shown.job else ()
        context = {
            "title": f"Consolidation of {stream.title}",
            "stream": stream,
            "version": shown,
            "parts": parts,
            "added": sum(part.words for part in parts if part.change == "added"),
            "removed": sum(part.words for part in parts if part.change == "removed"),
            "calls": calls,
            "absorbed": shown.absorbed.in_order(),
            "left": shown.shown.active().in_order(),
            "older": stream.versions.filter(pk__lt=shown.pk).order_by("-pk").first(),
            "newer": stream.versions.filter(pk__gt=shown.pk).order_by("pk").first(),
            "is_last": consolidate.last_version(stream) == shown,
            "may_change": self.has_change_permission(request, stream),
        }
        return render(request, "operator/streams/version.html", self.admin_site.each_context(request) | context)

    @method_decorator(require_POST)
    def fold_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Asks for a consolidation."""
        return self._changed(request, pk, self._fold)

    @method_decorator(require_POST)
    def undo_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Takes the last consolidation back."""
        return self._changed(request, pk, self._undo)

    def _shown(self, request: HttpRequest, pk: int) -> MemoryStream:
        stream = get_object_or_404(MemoryStream.objects.select_related("user", "session"), pk=pk)
        if not self.has_view_permission(request, stream):
            raise PermissionDenied
        return stream

    def _more(self, request: HttpRequest, what: str, shown: dict[str, Any]) -> HttpResponse:
        if request.headers.get("HX-Request"):
            return render(request, f"operator/streams/{what}.html", shown)
        return render(request, f"operator/streams/{what}_page.html", self.admin_site.each_context(request) | shown)

    def _changed(self, request: HttpRequest, pk: int, change: Any) -> HttpResponse:
        stream = get_object_or_404(MemoryStream.objects.select_related("user", "session"), pk=pk)
        if not self.has_change_permission(request, stream):
            raise PermissionDenied
        change(request, stream)
        return HttpResponseRedirect(reverse("admin:moments_app_memorystream_change", args=[stream.pk]))

    @transaction.atomic
    def _fold(self, request: HttpRequest, stream: MemoryStream) -> None:
        by = f"operator:{request.user}"
        job = Job.objects.request(consolidate.NAME, stream=stream, requested_by=by, force=True)
        self.log_change(request, stream, "Asked for a consolidation.")
        messages.success(request, f"{stream.title}: asked for, job {job.job_id}.")

    def _undo(self, request: HttpRequest, stream: MemoryStream) -> None:
        undo, told = partial(consolidate.undo, stream), "the text is as before, and what was absorbed waits again."
        log = "Undid the last consolidation."
        self.attempt(request, stream, undo, log=log, told=f"{stream.title}: {told}", about=stream.title)


def _page_of(stream: MemoryStream, kind: str, *, after: MemoryAtom | None = None) -> dict[str, Any]:
    """Items of a kind that are in memory, newest first."""
    atoms = stream.atoms.active().filter(atom_type=kind).newest_first()
    found = list((atoms.said_before(after) if after else atoms)[: PAGE + 1])
    return {"kind": kind, "items": found[:PAGE], "more_after": found[PAGE - 1] if len(found) > PAGE else None}


def _versions_of(stream: MemoryStream, *, before: int | None = None) -> dict[str, Any]:
    """Versions of its text, newest first, without the texts."""
    versions = stream.versions.select_related("job").defer("content_before", "content_after").order_by("-id")
    found: list[StreamVersion] = list((versions.filter(pk__lt=before) if before else versions)[: PAGE + 1])
    return {"versions": found[:PAGE], "more_before": found[PAGE - 1] if len(found) > PAGE else None}


def _counted(number: int) -> str:
    return f"{COUNTED}+" if number >= COUNTED else str(number)


def _when(stream: MemoryStream) -> str:
    """When it consolidates by itself, in words."""
    fresh, trigger = stream.fresh, max(stream.consolidation_trigger, 1)  # type: ignore[attr-defined]
    if not stream.consolidation_prompt:
        return "It has no consolidation prompt, so what is observed stays as it is."
    if fresh >= trigger:
        return "Enough wait: what comes in next asks for a consolidation."
    more = trigger - fresh
    return f"With {more} more {'observation' if more == 1 else 'observations'} it is consolidated by itself."
