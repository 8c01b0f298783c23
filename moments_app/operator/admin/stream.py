"""The list of streams, and the page of a stream with its settings, limits, text and items."""

from dataclasses import asdict
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.text import capfirst
from unfold.views import ChangeList

from moments_app.models import Job, MemoryAtom, MemoryStream
from moments_app.models.stream import SHARD_DEFAULTS
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.edit import pin_text
from moments_app.streams.texts import undo, write_text
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin
from sessions_app.admin.links import change_url, column
from sessions_app.admin.views import FormPage, RowAction, RowPage, actor_of, first_of, may_see, parse_number
from sessions_app.models.application import DEFAULT

PAGE = 20  # items per page
TITLES = {MemoryAtom.Type.OBSERVATION.value: "Waiting observations", MemoryAtom.Type.FACT.value: "Facts"}
COUNTED = 500  # maximum items to count, of each kind


class KindFilter(admin.ChoicesFieldListFilter):
    """A filter with the title "kind"."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "kind"


class StreamForm(FormPage[MemoryStream]):
    """The page of a stream: its text, its items, and when the next consolidation runs."""

    before = "operator/streams/stream.html"

    def context(self) -> dict[str, Any]:
        stream = self.row
        job = self.visible(stream.jobs.filter(process=Consolidate.name)).order_by("-id").first()
        return {
            "show_save_and_add_another": False,
            "stream": stream,
            "lines": stream.atoms.lines() if may_see(self.request, MemoryAtom) else (),
            "words": len(stream.consolidated_content.split()),
            "next_merge": _next_merge(stream),
            "job": job if job and job.status in (*Job.OPEN, Job.Status.FAILED) else None,
            "sections": self._sections() if may_see(self.request, MemoryAtom) else [],
            "may_change": self.admin.has_change_permission(self.request, stream),
            "may_add": self.request.user.has_perm("moments_app.add_memoryatom"),
        }

    def _sections(self) -> list[dict[str, Any]]:
        return [_items_of(self.row, kind) | {"title": title} for kind, title in TITLES.items()]


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
        do = partial(undo, stream, requested_by=self.actor)
        self.attempt(stream, do, log="Undid the last merge.", message=message)
        return change_url(stream)


def requested_stream(request: HttpRequest, parameter: str) -> MemoryStream | None:
    """Return the stream whose primary key is in the URL, or None."""
    pk = parse_number(request.GET.get(parameter, ""))
    return None if pk is None else MemoryStream.objects.select_related("user", "session").filter(pk=pk).first()


def _items_of(stream: MemoryStream, kind: str, *, after: MemoryAtom | None = None) -> dict[str, Any]:
    """Return the stream's active items of one kind, newest first. Candidates don't belong to the shard yet."""
    atoms = stream.atoms.active().filter(atom_type=kind, is_candidate=False).newest_first()
    items, more_after = first_of(atoms.older_than(after) if after else atoms, PAGE)
    return {"kind": kind, "items": items, "more_after": more_after}


def _next_merge(stream: MemoryStream) -> str:
    """Return a sentence that says when the stream is consolidated automatically."""
    fresh, trigger = stream.fresh, max(stream.consolidation_trigger, 1)  # type: ignore[attr-defined]
    if not stream.consolidation_prompt:
        return "The settings below have no instructions for merging, so observations are never merged into the text."
    if fresh >= trigger:
        return "Enough observations are waiting. The next message queues a merge."
    more = trigger - fresh
    return f"The text is updated automatically after {more} more {'observation' if more == 1 else 'observations'}."


class StreamFields(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        labels = {
            "name": "Name of the shared memory",
            "is_active": "In use",
            "pinned_content": "Pinned text",
            "consolidated_content": "Text",
            "extraction_prompt": "What to remember",
            "extracts_observations": "Collect observations",
            "extracts_facts": "Collect facts",
            "extraction_model": "Model that collects them",
            "consolidation_prompt": "How to merge observations into the text",
            "consolidation_trigger": "New observations before a merge",
            "consolidated_max_words": "Maximum words in the text",
            "consolidation_model": "Model that merges",
        }
        help_texts = {
            "agent_id": "The agent that uses the text. If blank, every agent uses the text.",
            "name": "",
            "application": "",
            "pinned_content": "Placed before the text. Jobs don't change it.",
            "consolidated_content": "One statement per line. Jobs merge observations into these lines.",
            "extraction_prompt": "Instructions for the language model.",
            "consolidation_prompt": "Instructions for the language model. If blank, observations are never merged.",
            "consolidation_trigger": "",
            "consolidation_model": "If blank, ENGINE__MODEL is used.",
        }


class ShardForm(StreamFields):
    """The form of a new shard. Its name must differ from the agent's other shards."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.instance.stream_type = MemoryStream.Type.AGENT
        self.fields["name"].required = True
        if "application" in self.fields:
            self.fields["application"].required = True

    def clean(self) -> dict[str, Any]:
        """Report conflicts as form errors before the database rejects them."""
        cleaned: dict[str, Any] = super().clean() or {}
        # Use the first application if the form doesn't have the field.
        self.instance.application_id = application = getattr(cleaned.get("application"), "pk", DEFAULT)
        shards = MemoryStream.objects.filter(stream_type=MemoryStream.Type.AGENT, application=application)
        if shards.filter(agent_id=cleaned.get("agent_id", ""), name=cleaned.get("name")).exists():
            self.add_error("name", "This agent already has a shared memory with this name. Choose another name.")
        return cleaned


class StreamList(ChangeList):  # type: ignore[misc]
    """A list that computes counts only for the rows on the page, not for those of previous pages."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = MemoryStream.objects.filter(pk__in=[stream.pk for stream in self.result_list])
        rows = rows.select_related("user", "session").with_counts(COUNTED).order_by("-pk")
        self.result_list = self.model_admin.with_application(rows) if are_several() else rows


def _counted(number: int) -> str:
    return f"{COUNTED}+" if number >= COUNTED else str(number)


@admin.register(MemoryStream)
class MemoryStreamAdmin(PageAdmin):
    """A stream: what it accepts, its limits and its text. New ones are shards. Others are created automatically."""

    list_display = ("of_type", "agent", "user", "session", "in_use", "waiting_count", "fact_count", "consolidated")
    list_filter = (("stream_type", KindFilter), "is_active")
    sortable_by = ()
    search_fields = search_prefixes = ("name", "agent_id", "user__user_id", "session__session_id")
    open_lookups = ("session__id__exact", "user__id__exact")
    search_help_text = "Start of a user_id, session_id, agent_id or name"
    ordering = ("-id",)
    when_empty = (
        "No memory texts yet. The first conversations create a text about each session and each person. "
        "To add a text that all users of an agent share, press Add memory text."
    )
    may_delete = False  # streams are deactivated instead, because their items have sources
    actions = ("consolidate", "undo")
    form, form_page = StreamFields, StreamForm
    views = (ConsolidateStream, UndoConsolidation, StreamItems)
    fieldsets = (
        ("Edit the text", {"classes": ("collapse",), "fields": ("pinned_content", "consolidated_content")}),
        (
            "Facts and observations",
            {
                "classes": ("collapse",),
                "fields": (
                    "is_active",
                    "extraction_prompt",
                    ("extracts_observations", "observation_max_words"),
                    ("extracts_facts", "fact_max_words"),
                    ("fact_buffer_max", "extraction_model"),
                ),
            },
        ),
        (
            "Merging observations into the text",
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
        ("Memory that all users of an agent share", {"fields": (("name", "agent_id"),)}),
        *((name, {"fields": options["fields"]}) for name, options in fieldsets[1:]),
    )

    def get_fieldsets(self, request: HttpRequest, obj: MemoryStream | None = None) -> Any:
        """Include a shard's application if there are several applications."""
        if obj is not None or not are_several():
            return super().get_fieldsets(request, obj)
        return (("Application", {"fields": ("application",)}), *self.add_fieldsets)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StreamList]:
        return StreamList

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryStream]:
        queryset: QuerySet[MemoryStream] = super().get_queryset(request)
        return queryset.select_related("user", "session")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> MemoryStream | None:
        stream: MemoryStream | None = super().get_object(request, object_id, from_field)
        figures = MemoryStream.objects.select_related("user", "session").with_counts(COUNTED)
        return figures.get(pk=stream.pk) if stream else None

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, **kwargs | ({} if obj else {"form": ShardForm}))

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        initial: dict[str, Any] = super().get_changeform_initial_data(request)
        return asdict(SHARD_DEFAULTS) | initial

    def save_model(self, request: HttpRequest, obj: MemoryStream, form: Any, change: bool) -> None:
        """Save only the edited fields, because the text may have changed since. Invalidate cached contexts."""
        if "pinned_content" in form.changed_data:
            pin_text(obj, obj.pinned_content, actor=actor_of(request))
        edited = set(form.changed_data)
        if change and "consolidated_content" in edited:
            write_text(obj, obj.consolidated_content, actor=actor_of(request))
        obj.last_updated_at = timezone.now()
        edited -= {"consolidated_content"}
        obj.save(update_fields=[*edited, "last_updated_at"] if change else None)

    # --- the list ---

    of_type = column("name_on_pages", "Text", str.capitalize)
    in_use = column("is_active", "In use", boolean=True)
    fact_count = column("facts", "Facts", _counted)
    consolidated = column("consolidated_at", "Last merge", empty_value="never")
    consolidate = ConsolidateStream.for_selected(
        "Merge waiting observations into the selected texts",
        button="Merge the observations",
        warning="A job rewrites each selected text with its waiting observations, even if only a few wait.",
    )
    undo = UndoConsolidation.for_selected(
        "Undo last merge of selected texts",
        button="Undo these merges",
        warning="In each text, the lines that the last merge wrote are removed. The lines that they replaced are "
        "restored, if they are known. The observations wait for the next merge.",
    )

    @admin.display(description="Agent")
    def agent(self, stream: MemoryStream) -> str:
        return stream.agent_id or "every agent"

    @admin.display(description="Waiting")
    def waiting_count(self, stream: MemoryStream) -> str:
        waiting = _counted(stream.waiting)  # type: ignore[attr-defined]
        return f"{waiting} of {stream.consolidation_trigger}" if stream.consolidation_prompt else waiting
