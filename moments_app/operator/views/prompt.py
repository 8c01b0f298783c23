"""Prompts: an editor, versions and their differences, and the active version."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.utils import timezone

from moments_app.models import EngineCall, PromptResource, PromptVersion
from moments_app.models.prompt import NewerVersion
from moments_app.operator.diff import DiffLine, line_diff
from moments_app.operator.pager import first_of
from moments_app.operator.prompt_help import help_for
from moments_app.prompts.versions import (
    MAX_CHARS,
    NO_WORD,
    NotApproved,
    is_second_asked,
    put_in_force,
    with_line_breaks,
)
from sessions_app.admin.links import page_url
from sessions_app.admin.views.base import RowPage
from sessions_app.text.tokens import estimate_tokens

VERSIONS = 50  # per page
LATEST_CHANGES = 10
JUNK_DAYS = 30
MAX_NUMBER = 2**31 - 1  # of a version


class TextForm(forms.Form):
    """A prompt's text."""

    content = forms.CharField(label="Text", max_length=MAX_CHARS, strip=False)

    def clean_content(self) -> str:
        """Return the text with normalized line breaks."""
        content: str = self.cleaned_data["content"]
        if not content.strip():
            raise forms.ValidationError(NO_WORD)
        return with_line_breaks(content)


class VersionForm(TextForm):
    """The editor. `after` is the newest version at the time it was opened."""

    note = forms.CharField(max_length=255, required=False)
    after = forms.IntegerField(min_value=0)


class CompareForm(forms.Form):
    """Two versions by their numbers."""

    old = forms.IntegerField(min_value=1, max_value=MAX_NUMBER)
    new = forms.IntegerField(min_value=1, max_value=MAX_NUMBER)


class PromptPage(RowPage[PromptResource]):
    """A page about a prompt."""

    has_trail = True

    def context(self) -> dict[str, Any]:
        may_edit = self.admin.has_change_permission(self.request, self.row)
        return {"resource": self.row, "may_edit": may_edit} | self._versions()

    def _versions(self) -> dict[str, Any]:
        """Read a page of versions without their texts, newest first."""
        before = self.number("before")
        calls = EngineCall.objects
        versions = calls.with_junk(calls.with_invalid_answers(self.row.versions.defer("content")))
        if before is not None and before <= MAX_NUMBER:
            versions = versions.filter(number__lt=before)
        found, last = first_of(versions, VERSIONS)
        since = timezone.now() - timedelta(days=JUNK_DAYS)
        junk = calls.junk_by_day(found, since)
        return {"versions": found, "older": last.number if last else None, "junk": junk, "junk_days": JUNK_DAYS}

    def go_back(self, version: PromptVersion | None = None) -> HttpResponseRedirect:
        """Return to the editor, with a version in it."""
        query = {"version": version.number} if version else {}
        return HttpResponseRedirect(page_url(self.row, "change", self.row.pk, **query))


class PromptEditor(PromptPage):
    """The editor and the data around it. The prompt's own row isn't edited, so this is not a Django admin form."""

    template_name = "operator/prompts/editor.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return self.editor()

    def editor(self, form: VersionForm | None = None, *, status: int = 200, **more: Any) -> HttpResponse:
        """Render the page.

        Args:
            form: the submitted form, to continue editing; None: the requested version, the active one, or the newest.
        """
        newest = self.row.versions.first()
        shown = self._version_asked_for() or self.row.active_version or newest
        initial = {"content": shown.content if shown else "", "after": newest.number if newest else 0}
        around = {
            "shown": shown,
            "form": form or VersionForm(initial=initial),
            "tokens": estimate_tokens(shown.content) if shown else 0,
        }
        return self.page(status=status, **around | more)

    def context(self) -> dict[str, Any]:
        shown = super().context() | {"help": help_for(self.row.purpose), "changes": self._changes()}
        shown |= {"is_second_asked": is_second_asked(), "panels": [panel.template for panel in PANELS]}
        for panel in PANELS:
            shown |= panel.context(self)
        return shown

    def _version_asked_for(self) -> PromptVersion | None:
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
    """A section that an extra adds to the editor.

    Args:
        template: What the section is rendered with.
        context: Returns what the template shows.
    """

    template: str
    context: Callable[[PromptEditor], dict[str, Any]]


PANELS: list[Panel] = []


class ChangesVersions(PromptEditor):
    """An action of the editor that adds or activates a version."""

    permission = "change"
    http_method_names = ["post"]

    def has_permission(self) -> bool:
        return bool(self.admin.has_change_permission(self.request, self.row))

    def try_to_put_in_force(self, version: PromptVersion) -> None:
        """Activate a version from the next job on, or report why that is not possible."""
        try:
            with transaction.atomic():
                put_in_force(version, by=self.actor)
                number = version.number
                self.log(self.row, f"Activated version {number}.", f"Version {number} is active.")
        except NotApproved as error:
            messages.error(self.request, str(error))


class AddVersion(ChangesVersions):
    """Store the editor's text as a new version, and activate it on request."""

    route, name = "<path:pk>/versions/", "add_version"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = VersionForm(request.POST)
        if not form.is_valid():
            return self.editor(form, status=400)
        try:
            version = self._added(form)
        except NewerVersion as error:
            again = VersionForm(request.POST.dict() | {"after": str(error.newest.number)})
            missed = self._missed(form.cleaned_data["after"], error.newest)
            return self.editor(again, status=409, newer=error, missed=missed)
        messages.success(request, f"Saved as version {version.number}.")
        if "activate" in request.POST:
            self.try_to_put_in_force(version)
        return self.go_back(version)

    @transaction.atomic
    def _added(self, form: VersionForm) -> PromptVersion:
        written, resource = form.cleaned_data, self.row
        note, after = written["note"], written["after"]
        version = resource.add_version(written["content"], created_by=self.actor, note=note, after=after)
        self.admin.log_change(self.request, resource, f"Saved version {version.number}.")
        return version

    def _missed(self, opened: int, newest: PromptVersion) -> list[list[DiffLine]]:
        """Compare the newest version with the one on which the editor was opened."""
        before = self.row.versions.filter(number=opened).first()
        return line_diff(before.content if before else "", newest.content)


class ActivateVersion(ChangesVersions):
    """Activate a version."""

    route, name = "<path:pk>/activate/<int:number>/", "activate"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        version = get_object_or_404(self.row.versions, number=self.kwargs["number"])
        self.try_to_put_in_force(version)
        return self.go_back(version)


class CompareVersions(PromptPage):
    """The page that compares two versions."""

    route, name = "<path:pk>/compare/", "compare"
    template_name = "operator/prompts/compare.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        form = CompareForm(request.GET)
        if not form.is_valid():
            return self.go_back()
        old, new = (get_object_or_404(self.row.versions, number=form.cleaned_data[name]) for name in ("old", "new"))
        return self.page(old=old, new=new, compared=(old, new), hunks=line_diff(old.content, new.content))
