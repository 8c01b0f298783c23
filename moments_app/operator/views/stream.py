"""The page of a stream with its text and items; and consolidating it, or undoing the last consolidation."""

from functools import partial
from typing import Any

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.text import capfirst

from moments_app.models import Job, MemoryAtom, MemoryStream
from moments_app.operator.pager import first_of
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.texts import undo
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction, RowPage, may_see, number_in

PAGE = 20  # items
TITLES = {MemoryAtom.Type.OBSERVATION.value: "Waiting observations", MemoryAtom.Type.FACT.value: "Facts"}


class StreamForm(FormPage[MemoryStream]):
    """The page of a stream: its text, its items, and the time of the next consolidation."""

    before = "operator/streams/stream.html"

    def context(self) -> dict[str, Any]:
        stream = self.row
        job = self.seen(stream.jobs.filter(process=Consolidate.name)).order_by("-id").first()
        return {
            "show_save_and_add_another": False,
            "stream": stream,
            "lines": stream.atoms.lines() if may_see(self.request, MemoryAtom) else (),
            "words": len(stream.consolidated_content.split()),
            "when": _when(stream),
            "job": job if job and job.status in (*Job.OPEN, Job.Status.FAILED) else None,
            "sections": [_items_of(stream, kind) | {"title": title} for kind, title in TITLES.items()]
            if may_see(self.request, MemoryAtom)
            else [],
            "may_change": self.admin.has_change_permission(self.request, stream),
            "may_add": self.request.user.has_perm("moments_app.add_memoryatom"),
        }


class StreamItems(RowPage[MemoryStream]):
    """A page of a stream's items of one kind: rows for the stream's page, or a separate page."""

    route, name = "<int:pk>/items/<str:kind>/", "items"
    needs = ("moments_app.view_memoryatom",)
    template_name = "operator/streams/items_page.html"

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        if self.request.headers.get("HX-Request"):
            return render(self.request, "operator/streams/items.html", self.context())
        return super().page(status=status, **more)

    def get_title(self) -> str:
        return f"{TITLES[self.kwargs['kind']]}: {self.row.title}"

    def context(self) -> dict[str, Any]:
        stream, kind = self.row, self.kwargs["kind"]
        if kind not in TITLES:
            raise Http404
        pk = self.number("after")
        after = None if pk is None else stream.atoms.filter(pk=pk).first()
        return _items_of(stream, kind, after=after) | {"stream": stream}


class ConsolidateStream(RowAction[MemoryStream]):
    """Queue a consolidation, even if only a few observations are waiting."""

    route, name = "<int:pk>/consolidate/", "consolidate"

    @transaction.atomic
    def change(self, stream: MemoryStream) -> str:
        Job.objects.request(Consolidate.name, stream=stream, requested_by=self.actor, force=True)
        self.log(stream, "Queued a merge.", f"{capfirst(stream.title)}: a merge is queued.")
        return change_url(stream)


class UndoConsolidation(RowAction[MemoryStream]):
    """Undo the last consolidation."""

    route, name = "<int:pk>/undo/", "undo"

    def change(self, stream: MemoryStream) -> str:
        message = f"{capfirst(stream.title)}: the last merge was undone. Its observations wait for the next merge."
        self.attempt(
            stream,
            partial(undo, stream, requested_by=self.actor),
            log="Undid the last merge.",
            message=message,
            about=stream.title,
        )
        return change_url(stream)


def stream_named(request: HttpRequest, parameter: str) -> MemoryStream | None:
    """Return the stream with the primary key in the URL; None if there is none."""
    pk = number_in(request.GET.get(parameter, ""))
    return None if pk is None else MemoryStream.objects.select_related("user", "session").filter(pk=pk).first()


def _items_of(stream: MemoryStream, kind: str, *, after: MemoryAtom | None = None) -> dict[str, Any]:
    """Read items of a kind that are in memory, newest first. Candidates don't belong to the shard yet."""
    atoms = stream.atoms.active().filter(atom_type=kind, is_candidate=False).newest_first()
    items, more_after = first_of(atoms.said_before(after) if after else atoms, PAGE)
    return {"kind": kind, "items": items, "more_after": more_after}


def _when(stream: MemoryStream) -> str:
    """Return when the stream is consolidated automatically."""
    fresh, trigger = stream.fresh, max(stream.consolidation_trigger, 1)  # type: ignore[attr-defined]
    if not stream.consolidation_prompt:
        return "The settings below have no instructions for merging, so observations are never merged into the text."
    if fresh >= trigger:
        return "Enough observations are waiting. The next message queues a merge."
    more = trigger - fresh
    return f"The text is updated automatically after {more} more {'observation' if more == 1 else 'observations'}."
