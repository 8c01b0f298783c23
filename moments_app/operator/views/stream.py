"""The page of a stream: its text, its items and the versions of its text; and consolidating it, or undoing that."""

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from moments_app.models import EngineCall, Job, MemoryAtom, MemoryStream, StreamVersion
from moments_app.operator.diff import word_diff
from moments_app.operator.pager import first_of
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.texts import current_lines, last_version, undo
from sessions_app.admin.actors import with_key_names
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction, RowPage, may_see, number_in

PAGE = 20  # items, or versions
TITLES = {MemoryAtom.Type.OBSERVATION.value: "Waiting observations", MemoryAtom.Type.FACT.value: "Facts"}


class StreamForm(FormPage[MemoryStream]):
    """The page of a stream: its items, when it is consolidated next, and the newest versions of its text."""

    before = "operator/streams/stream.html"

    def context(self) -> dict[str, Any]:
        stream = self.row
        job = self.seen(stream.jobs.filter(process=Consolidate.name)).order_by("-id").first()
        last = last_version(stream)
        return {
            "show_save_and_add_another": False,
            "stream": stream,
            "lines": current_lines(stream),
            "words": len(stream.consolidated_content.split()),
            "when": _when(stream),
            "job": job if job and job.status in (*Job.OPEN, Job.Status.FAILED) else None,
            "sections": [_items_of(stream, kind) | {"title": title} for kind, title in TITLES.items()]
            if may_see(self.request, MemoryAtom)
            else [],
            "may_change": self.admin.has_change_permission(self.request, stream),
            "may_add": self.request.user.has_perm("moments_app.add_memoryatom"),
            "last": last,
            "is_edited": last is not None and last.content_after != stream.consolidated_content,
        } | _versions_of(self.request, stream)


class MorePage(RowPage[MemoryStream]):
    """More of a list that the stream's page begins: lines for that page, or a page by itself."""

    part_name = ""

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        if self.request.headers.get("HX-Request"):
            return render(self.request, self.part_name, self.context())
        return super().page(status=status, **more)


class StreamItems(MorePage):
    """A page of a stream's items of one kind."""

    route, name = "<int:pk>/items/<str:kind>/", "items"
    needs = ("moments_app.view_memoryatom",)
    template_name, part_name = "operator/streams/items_page.html", "operator/streams/items.html"

    def get_title(self) -> str:
        return f"{TITLES[self.kwargs['kind']]} of {self.row.title}"

    def context(self) -> dict[str, Any]:
        stream, kind = self.row, self.kwargs["kind"]
        if kind not in TITLES:
            raise Http404
        pk = self.number("after")
        after = None if pk is None else stream.atoms.filter(pk=pk).first()
        return _items_of(stream, kind, after=after) | {"stream": stream}


class StreamVersions(MorePage):
    """A page of the versions of a stream's text."""

    route, name = "<int:pk>/versions/", "versions"
    template_name, part_name = "operator/streams/versions_page.html", "operator/streams/versions.html"

    def get_title(self) -> str:
        return f"Versions of {self.row.title}"

    def context(self) -> dict[str, Any]:
        return _versions_of(self.request, self.row, before=self.number("before")) | {"stream": self.row}


class StreamVersionPage(RowPage[MemoryStream]):
    """The page of one consolidation: what it changed in the text, and what it absorbed."""

    route, name = "<int:pk>/versions/<int:version>/", "version"
    template_name = "operator/streams/version.html"

    def get_title(self) -> str:
        return f"Consolidation of {self.row.title}"

    def context(self) -> dict[str, Any]:
        stream = self.row
        versions = with_key_names(self.request, stream.versions.select_related("job"), "job__requested_by")
        version = get_object_or_404(versions, pk=self.kwargs["version"])
        parts = word_diff(version.content_before, version.content_after)
        return {
            "stream": stream,
            "version": version,
            "parts": parts,
            "added": sum(part.words for part in parts if part.change == "added"),
            "removed": sum(part.words for part in parts if part.change == "removed"),
            "calls": self._calls(version),
            "absorbed": self.seen(version.absorbed.in_order()),
            "left": self.seen(version.shown.active().in_order()),
            "older": stream.versions.filter(pk__lt=version.pk).order_by("-pk").first(),
            "newer": stream.versions.filter(pk__gt=version.pk).order_by("pk").first(),
            "is_last": last_version(stream) == version,
            "may_change": self.admin.has_change_permission(self.request, stream),
        }

    def _calls(self, version: StreamVersion) -> QuerySet[EngineCall] | tuple[()]:
        calls = version.job.engine_calls.select_related("prompt_version__resource") if version.job else None
        return () if calls is None else self.seen(calls)


class ConsolidateStream(RowAction[MemoryStream]):
    """Ask for a consolidation, however few observations wait."""

    route, name = "<int:pk>/consolidate/", "consolidate"

    @transaction.atomic
    def change(self, stream: MemoryStream) -> str:
        job = Job.objects.request(Consolidate.name, stream=stream, requested_by=self.actor, force=True)
        self.log(stream, "Queued a consolidation.", f"{stream.title}: queued as job {job.job_id}.")
        return change_url(stream)


class UndoConsolidation(RowAction[MemoryStream]):
    """Take the last consolidation back."""

    route, name = "<int:pk>/undo/", "undo"

    def change(self, stream: MemoryStream) -> str:
        message = f"{stream.title}: the text is back to its previous version, and its observations wait again."
        self.attempt(
            stream,
            partial(undo, stream, requested_by=self.actor),
            log="Undid the last consolidation.",
            message=message,
            about=stream.title,
        )
        return change_url(stream)


def stream_named(request: HttpRequest, parameter: str) -> MemoryStream | None:
    """Return the stream whose key the address carries; None where there is none."""
    pk = number_in(request.GET.get(parameter, ""))
    return None if pk is None else MemoryStream.objects.select_related("user", "session").filter(pk=pk).first()


def _items_of(stream: MemoryStream, kind: str, *, after: MemoryAtom | None = None) -> dict[str, Any]:
    """Read items of a kind that are in memory, newest first; candidates are no shard's yet."""
    atoms = stream.atoms.active().filter(atom_type=kind, is_candidate=False).newest_first()
    items, more_after = first_of(atoms.said_before(after) if after else atoms, PAGE)
    return {"kind": kind, "items": items, "more_after": more_after}


def _versions_of(request: HttpRequest, stream: MemoryStream, *, before: int | None = None) -> dict[str, Any]:
    """Read versions of the text, newest first, without the texts."""
    versions = stream.versions.select_related("job").defer("content_before", "content_after").order_by("-id")
    versions = with_key_names(request, versions, "job__requested_by")
    shown: QuerySet[StreamVersion] = versions if before is None else versions.filter(pk__lt=before)
    found, more_before = first_of(shown, PAGE)
    return {"versions": found, "more_before": more_before}


def _when(stream: MemoryStream) -> str:
    """Say when the stream consolidates by itself."""
    fresh, trigger = stream.fresh, max(stream.consolidation_trigger, 1)  # type: ignore[attr-defined]
    if not stream.consolidation_prompt:
        return "This stream has no consolidation prompt, so observations are never merged into a text."
    if fresh >= trigger:
        return "Enough observations wait. The next message queues a consolidation."
    more = trigger - fresh
    return f"It is consolidated automatically after {more} more {'observation' if more == 1 else 'observations'}."
