"""Prompts: an editor, versions and what differs between them, which one is in force, and trying one out."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from moments_app.jobs.trial import CannotTry, can_be_tried, try_prompt
from moments_app.models import EngineCall, MemoryStream, PromptResource, PromptTrial, PromptVersion
from moments_app.models.prompt import NewerVersion
from moments_app.operator import prompt_sample, prompt_trial
from moments_app.operator.diff import DiffLine, line_diff
from moments_app.operator.pager import first_of
from moments_app.operator.prompt_help import help_for
from moments_app.operator.rights import READ_PERSON, SEE_MEMORY, SEE_PROBES
from moments_app.probes.trial import try_probes
from moments_app.prompts.versions import (
    MAX_CHARS,
    NO_WORD,
    NotApproved,
    is_second_asked,
    put_in_force,
    with_line_breaks,
)
from moments_app.reports.tried import given, is_about_streams
from sessions_app.admin.links import page_url
from sessions_app.admin.reading import people_of
from sessions_app.admin.views.base import RowPage
from sessions_app.models import Session
from sessions_app.tokens import estimate_tokens

VERSIONS = 50  # a page
LATEST_CHANGES = 10
TRIALS = 10  # over samples
JUNK_DAYS = 30
MAX_NUMBER = 2**31 - 1  # of a version


class TextForm(forms.Form):
    """A prompt's text."""

    content = forms.CharField(label="Text", max_length=MAX_CHARS, strip=False)

    def clean_content(self) -> str:
        """Return the text with line breaks as prompts have them."""
        content: str = self.cleaned_data["content"]
        if not content.strip():
            raise forms.ValidationError(NO_WORD)
        return with_line_breaks(content)


class VersionForm(TextForm):
    """The editor. `after` is the newest version there was when it was opened."""

    note = forms.CharField(max_length=255, required=False)
    after = forms.IntegerField(min_value=0)


class TrialForm(TextForm):
    """A text, and what it is tried on."""

    subject = forms.IntegerField(
        label="Try on", min_value=1, max_value=2**62, error_messages={"required": "Choose one of the list."}
    )


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
        versions = PromptTrial.objects.tried_versions(self.row.versions.defer("content"))
        versions = calls.with_junk(calls.with_invalid_answers(versions))
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
    """The editor with all that is around it. Of a prompt itself nothing is changed, so it has no form of Django's."""

    template_name = "operator/prompts/editor.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return self.editor()

    def editor(self, form: VersionForm | None = None, *, status: int = 200, **more: Any) -> HttpResponse:
        """Render the page.

        Args:
            form: what was typed, to be typed on; None for the version asked for, else that in force, else the newest.
            status: the answer's status.
            more: further context for the template.
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
        shown |= {
            "trials": prompt_sample.trials_of(self.row, actor=self.actor)[:TRIALS],
            "is_second_asked": is_second_asked(),
        }
        return shown | (self._trial_context() if self.may_try() and can_be_tried(self.row) else {})

    def may_try(self) -> bool:
        """Tell whether the operator may try prompts: a trial costs money, and shows what was said."""
        may_change = self.admin.has_change_permission(self.request)
        return bool(may_change and self.request.user.has_perms((READ_PERSON, *SEE_MEMORY)))

    def _version_asked_for(self) -> PromptVersion | None:
        number = self.number("version")
        if number is None or number > MAX_NUMBER:
            return None
        return self.row.versions.filter(number=number).first()

    def _trial_context(self) -> dict[str, Any]:
        begins = self.request.POST.get("begins", "")
        return {
            "may_try": True,
            "uses_model": settings.ENGINE.uses_model,
            "seconds": round(settings.ENGINE.timeout_seconds),
            "is_about_streams": is_about_streams(self.row),
            "begins": begins,
            "subjects": prompt_trial.subjects(self.row, begins),
            "sizes": prompt_sample.SIZES,
            "chosen": self.request.POST.get("subject", ""),
        }

    def _changes(self) -> list[LogEntry]:
        about = ContentType.objects.get_for_model(PromptResource)
        entries = LogEntry.objects.filter(content_type=about, object_id=str(self.row.pk))
        return list(entries.select_related("user").order_by("-action_time", "-id")[:LATEST_CHANGES])


class ChangesVersions(PromptEditor):
    """A button of the editor that changes which versions there are, or which is in force."""

    permission = "change"
    http_method_names = ["post"]

    def has_permission(self) -> bool:
        return bool(self.admin.has_change_permission(self.request, self.row))

    def try_to_put_in_force(self, version: PromptVersion) -> None:
        """Have a version count from the next job on, or say why not."""
        try:
            with transaction.atomic():
                put_in_force(version, by=self.actor)
                number = version.number
                self.log(self.row, f"Put version {number} in force.", f"Version {number} is in force.")
        except NotApproved as error:
            messages.error(self.request, str(error))


class AddVersion(ChangesVersions):
    """Store the editor's text as a new version, and put it in force when asked to."""

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
        """Compare the newest version with the one that the editor was opened on."""
        before = self.row.versions.filter(number=opened).first()
        return line_diff(before.content if before else "", newest.content)


class ActivateVersion(ChangesVersions):
    """Put a version in force."""

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


class TriesPrompt(PromptEditor):
    """A view for those who may try prompts."""

    def has_permission(self) -> bool:
        return self.may_try()

    def rows(self) -> QuerySet[PromptResource]:
        return super().rows().select_related("active_version")


class TryPrompt(TriesPrompt):
    """Show what the text in the editor makes of a session, beside the version in force; nothing is written."""

    route, name = "<path:pk>/try/", "try"
    http_method_names = ["post"]
    tried: Session | MemoryStream | None = None

    def people(self) -> Collection[int]:
        """Return the person whom the text was tried on."""
        return people_of(self.tried) if self.tried else ()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        shown = {} if request.POST.get("step") == "find" else self._tried(TrialForm(request.POST))
        if request.headers.get("HX-Request"):
            return render(request, "operator/prompts/trial.html", {"resource": self.row} | shown)
        return self.editor(VersionForm(request.POST), **shown)

    def _tried(self, form: TrialForm) -> dict[str, Any]:
        """Try the text; say why where that can't be done."""
        if not form.is_valid():
            return {"problem": " ".join(f"{field.label}: {error}" for field in form for error in field.errors)}
        subject = prompt_trial.subject_with(self.row, form.cleaned_data["subject"])
        if subject is None:
            return {"problem": "What was chosen is not there any more."}
        try:
            trial = try_prompt(self._version_with(form.cleaned_data["content"]), subject)
        except CannotTry as error:
            return {"problem": str(error)}
        self.tried = subject
        return {
            "subject": subject,
            "given": given(trial.input),
            "trial": trial,
            "sides": prompt_trial.sides(trial, self.row.active_version),
            "probes": try_probes(trial, subject) if self.request.user.has_perm(SEE_PROBES) else [],
        }

    def _version_with(self, content: str) -> PromptVersion:
        """Return the saved version with this text, else one that is not saved."""
        saved = self.row.versions.filter(content=content).first()
        return saved or PromptVersion(resource=self.row, content=content)


class TrialSubjects(TriesPrompt):
    """The subjects to try a prompt on, for the list that follows what is typed."""

    route, name = "<path:pk>/subjects/", "subjects"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        found = prompt_trial.subjects(self.row, request.GET.get("begins", ""))
        return render(request, "operator/prompts/subjects.html", {"subjects": found})
