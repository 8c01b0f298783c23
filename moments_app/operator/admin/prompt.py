"""The list of prompts, their editor, the comparison of versions, and the activation of a version."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.utils import timezone
from pydantic import BaseModel

from moments_app.engines.calls.formation import FormationShape
from moments_app.engines.calls.moments import SHOWN_MOMENTS, MomentAnswer
from moments_app.engines.calls.texts import ConsolidationAnswer, DigestAnswer, QueryAnswer, SummaryAnswer
from moments_app.engines.transcript import instructions
from moments_app.models import EngineCall, PromptResource, PromptVersion
from moments_app.models.prompt import NewerVersion
from moments_app.operator.admin.job import TitleFilter
from moments_app.operator.diff import DiffLine, line_diff
from moments_app.prompts import (
    BLANK_PROMPT,
    MAX_CHARS,
    NotApproved,
    activate_version,
    needs_second_editor,
    normalize_newlines,
)
from moments_app.sessions.checkpoint import MAX_WORDS
from moments_app.streams.consolidate import MAX_OBSERVATIONS
from moments_app.streams.formation import MAX_TURNS
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin
from sessions_app.admin.links import column, page_url
from sessions_app.admin.views import RowPage, first_of, without_field
from sessions_app.limited_operators import is_limited
from sessions_app.text.length import estimate_tokens

Purpose = PromptResource.Purpose
VERSIONS = 50  # versions per page
LATEST_CHANGES = 10
JUNK_DAYS = 30
MAX_NUMBER = 2**31 - 1  # maximum version number


@dataclass(frozen=True)
class AnswerField:
    """A field of the answer. `name` includes the names of its parents."""

    name: str
    limit: str
    description: str


@dataclass(frozen=True)
class PromptHelp:
    """The help next to the editor.

    Args:
        use: what the prompt is for.
        given: what the engine receives in addition to the prompt.
        fields: the fields of the answer.
        rules: the rules that follow the prompt; blank if no engine reads the prompt.
    """

    use: str
    given: list[str]
    fields: list[AnswerField]
    rules: str


def help_for(purpose: str) -> PromptHelp:
    use, given, answer = _HELP[purpose]
    lines = [line.format(tokens=f"{settings.MOMENT_BUILDER.max_input_tokens:,}") for line in given]
    if answer is None:
        return PromptHelp(use, lines, [], "")
    schema = answer.model_json_schema()
    rules = instructions("", has_turns=purpose != Purpose.STREAM_CONSOLIDATION).strip()
    return PromptHelp(use, lines, list(_fields(schema, schema.get("$defs", {}), "")), rules)


# For each purpose: what the prompt is for, what the engine receives, and the schema of the answer.
_HELP: dict[str, tuple[str, list[str], type[BaseModel] | None]] = {
    Purpose.MOMENT_BUILDER: (
        "Divides older turns of a session into moments.",
        [
            "The turns, numbered from 0, at most about {tokens} tokens a call",
            f"The latest moments before the turns, at most {SHOWN_MOMENTS}",
        ],
        MomentAnswer,
    ),
    Purpose.ROLLING_SUMMARY: (
        "Updates the summary of a session's latest turns after each answer.",
        [
            "The turns since the last summary, at most about {tokens} tokens",
            "The summary so far, and its facts about turns in the window",
            "The first turn of the window",
        ],
        SummaryAnswer,
    ),
    Purpose.MEMORY_EXTRACTION: (
        "Extracts observations and facts from the latest turns, and assigns them to memory texts.",
        [
            f"The turns since the last extraction, at most {MAX_TURNS} and about {{tokens}} tokens",
            "For each memory text: what to remember, the maximum number of words, and existing items",
        ],
        FormationShape,
    ),
    Purpose.STREAM_CONSOLIDATION: (
        "Merges the waiting observations of a memory text into it.",
        [
            "The text's own instructions, and its maximum number of words",
            "The current lines with their labels, and lines written by hand, which don't change",
            f"The waiting observations with their dates, oldest first, at most {MAX_OBSERVATIONS}",
        ],
        ConsolidationAnswer,
    ),
    Purpose.SESSION_DIGEST: (
        "Writes a short summary of a session that pauses or ends, and lessons for the person's later contexts.",
        [
            "The live turns that are not in a moment yet, at most about {tokens} tokens a call",
            "What is known from earlier turns",
            f"The maximum number of words: {MAX_WORDS}",
        ],
        DigestAnswer,
    ),
    Purpose.RECALL_QUERY: (
        "Writes the memory search for a message, for contexts with `retrieval=auto`.",
        ["The latest turns of the session", "The message to answer"],
        QueryAnswer,
    ),
    Purpose.MEMORY_POLICY: (
        "The first layer of every context, word for word. No engine reads it.",
        [],
        None,
    ),
}


def _fields(schema: dict[str, Any], definitions: dict[str, Any], parents: str) -> Iterator[AnswerField]:
    for name, field in schema["properties"].items():
        yield AnswerField(f"{parents}{name}", _limit(field), field.get("description", ""))
        if nested := definitions.get(field.get("items", {}).get("$ref", "").rpartition("/")[2]):
            yield from _fields(nested, definitions, f"{parents}{name} › ")


def _limit(field: dict[str, Any]) -> str:
    if field["type"] == "array":
        return f"list, at most {field['maxItems']:,}" if "maxItems" in field else "list"
    if field["type"] == "string":
        return f"text, at most {field['maxLength']:,} characters" if "maxLength" in field else "text"
    return "number"


class TextForm(forms.Form):
    content = forms.CharField(label="Text", max_length=MAX_CHARS, strip=False)

    def clean_content(self) -> str:
        content: str = self.cleaned_data["content"]
        if not content.strip():
            raise forms.ValidationError(without_field(BLANK_PROMPT))
        return normalize_newlines(content)


class VersionForm(TextForm):
    """The form of the editor. `after` is the newest version when the editor was opened, or 0."""

    note = forms.CharField(max_length=255, required=False)
    after = forms.IntegerField(min_value=0)


class CompareForm(forms.Form):
    old = forms.IntegerField(min_value=1, max_value=MAX_NUMBER)
    new = forms.IntegerField(min_value=1, max_value=MAX_NUMBER)


class PromptPage(RowPage[PromptResource]):
    has_trail = True

    def context(self) -> dict[str, Any]:
        may_edit = self.admin.has_change_permission(self.request, self.row)
        return {"resource": self.row, "may_edit": may_edit} | self._versions()

    def _versions(self) -> dict[str, Any]:
        """Return the template context for a page of versions, newest first, without their texts."""
        before = self.number("before")
        calls = EngineCall.objects
        versions = calls.with_dropped(calls.with_invalid_answers(self.row.versions.defer("content")))
        if before is not None and before <= MAX_NUMBER:
            versions = versions.filter(number__lt=before)
        found, last = first_of(versions, VERSIONS)
        since = timezone.now() - timedelta(days=JUNK_DAYS)
        junk = calls.dropped_by_day(found, since)
        return {"versions": found, "older": last.number if last else None, "junk": junk, "junk_days": JUNK_DAYS}

    def go_back(self, version: PromptVersion | None = None) -> HttpResponseRedirect:
        query = {"version": version.number} if version else {}
        return HttpResponseRedirect(page_url(self.row, "change", self.row.pk, **query))


class PromptEditor(PromptPage):
    """The editor of a prompt, with help, the versions, and the latest changes."""

    template_name = "operator/prompts/editor.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return self.editor()

    def editor(self, form: VersionForm | None = None, *, status: int = 200, **more: Any) -> HttpResponse:
        """Render the page with a form that has errors, or with the requested, active or newest version."""
        newest = self.row.versions.first()
        shown = self._requested_version() or self.row.active_version or newest
        initial = {"content": shown.content if shown else "", "after": newest.number if newest else 0}
        form, tokens = form or VersionForm(initial=initial), estimate_tokens(shown.content) if shown else 0
        return self.page(status=status, **{"shown": shown, "form": form, "tokens": tokens} | more)

    def context(self) -> dict[str, Any]:
        shown = super().context() | {"help": help_for(self.row.purpose), "changes": self._changes()}
        shown |= {"needs_second_editor": needs_second_editor(), "panels": [panel.template for panel in PANELS]}
        for panel in PANELS:
            shown |= panel.context(self)
        return shown

    def _requested_version(self) -> PromptVersion | None:
        number = self.number("version")
        if number is None or number > MAX_NUMBER:
            return None
        return self.row.versions.filter(number=number).first()

    def _changes(self) -> list[LogEntry]:
        about = ContentType.objects.get_for_model(PromptResource)
        entries = LogEntry.objects.filter(content_type=about, object_id=str(self.row.pk))
        return list(entries.select_related("user").order_by("-action_time", "-id")[:LATEST_CHANGES])


@dataclass(frozen=True)
class Panel:
    """A section that an optional app adds to the editor.

    Args:
        template: the template of the section.
        context: a function that returns the template's context.
    """

    template: str
    context: Callable[[PromptEditor], dict[str, Any]]


PANELS: list[Panel] = []


class VersionAction(PromptEditor):
    """An action of the editor that adds or activates a version."""

    permission = "change"
    http_method_names = ["post"]

    def has_permission(self) -> bool:
        return bool(self.admin.has_change_permission(self.request, self.row))

    def activate(self, version: PromptVersion) -> None:
        """Activate a version, starting with the next job, or report why this is not possible."""
        try:
            with transaction.atomic():
                if activate_version(version, by=self.actor):
                    self.log(self.row, f"Activated version {version.number}.", f"Version {version.number} is active.")
                else:
                    messages.info(self.request, f"Version {version.number} was already active.")
        except NotApproved as error:
            messages.error(self.request, str(error))


class AddVersion(VersionAction):
    """Store the editor's text as a new version, and activate it on request."""

    route, name = "<path:pk>/versions/", "add_version"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = VersionForm(request.POST)
        if not form.is_valid():
            return self.editor(form, status=400)
        try:
            version = self._add(form)
        except NewerVersion as error:
            again = VersionForm(request.POST.dict() | {"after": str(error.newest.number)})
            hunks = self._changes_since(form.cleaned_data["after"], error.newest)
            return self.editor(again, status=409, newer=error, newer_hunks=hunks)
        messages.success(request, f"Saved as version {version.number}.")
        if "activate" in request.POST:
            self.activate(version)
        return self.go_back(version)

    @transaction.atomic
    def _add(self, form: VersionForm) -> PromptVersion:
        version = self.row.add_version(**form.cleaned_data, created_by=self.actor)
        self.admin.log_change(self.request, self.row, f"Saved version {version.number}.")
        return version

    def _changes_since(self, opened: int, newest: PromptVersion) -> list[list[DiffLine]]:
        """Return the diff between the version that was the newest when the editor was opened, and the newest now."""
        before = self.row.versions.filter(number=opened).first()
        return line_diff(before.content if before else "", newest.content)


class ActivateVersion(VersionAction):
    """Activate a version."""

    route, name = "<path:pk>/activate/<int:number>/", "activate"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        version = get_object_or_404(self.row.versions, number=self.kwargs["number"])
        self.activate(version)
        return self.go_back(version)


class CompareVersions(PromptPage):
    """The comparison of two versions."""

    route, name = "<path:pk>/compare/", "compare"
    template_name = "operator/prompts/compare.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        form = CompareForm(request.GET)
        if not form.is_valid():
            return self.go_back()
        old, new = (get_object_or_404(self.row.versions, number=form.cleaned_data[name]) for name in ("old", "new"))
        return self.page(old=old, new=new, compared=(old, new), hunks=line_diff(old.content, new.content))


@admin.register(PromptResource)
class PromptResourceAdmin(PageAdmin):
    """Prompt resources, each with the active version."""

    list_display = ("name", "address", "version", "active_since")
    list_filter = (("purpose", TitleFilter),)
    list_select_related = ("active_version__resource",)
    search_fields = ("uri", "name")
    ordering = ("uri",)
    fields = (("name", "uri", "purpose"),)
    may_delete = False  # moments refer to the version that created them
    change_page = PromptEditor
    address = column("uri", "Address", ordering="uri")
    views = (AddVersion, ActivateVersion, CompareVersions)

    @admin.display(description="Active version", empty_value="none")
    def version(self, prompt: PromptResource) -> int | None:
        return prompt.active_version.number if prompt.active_version else None

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*self.fields, "application") if are_several() else self.fields

    def has_change_permission(self, request: HttpRequest, obj: PromptResource | None = None) -> bool:
        """Prevent operators limited to some applications from changing global prompts."""
        is_others = obj is not None and obj.application_id is None and is_limited(request.user)
        return not is_others and bool(super().has_change_permission(request, obj))
