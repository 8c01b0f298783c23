"""Trials of a prompt text on a session or stream, compared with the active version."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from memory_extras.lab.probes.trial import try_probes
from memory_extras.lab.rights import SEE_PROBES
from memory_extras.lab.trials import sample, subjects
from memory_extras.lab.trials.parts import given, is_about_streams
from memory_extras.lab.trials.try_prompt import CannotTry, can_be_tried, try_prompt
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from moments_app.operator.admin.prompt import Panel, PromptEditor, TextForm, VersionForm
from moments_app.operator.rights import READ_PERSON, SEE_MEMORY
from sessions_app.admin.access_log import people_of
from sessions_app.models import Session

TRIALS = 10  # over samples


class TrialForm(TextForm):
    """A text, and the session or stream to try it on."""

    subject = forms.IntegerField(
        label="Try on", min_value=1, max_value=2**62, error_messages={"required": "Choose one from the list."}
    )


def may_try(page: PromptEditor) -> bool:
    """Return whether the operator may try prompts. A trial costs money, and shows messages."""
    may_change = page.admin.has_change_permission(page.request)
    return bool(may_change and page.request.user.has_perms((READ_PERSON, *SEE_MEMORY)))


def panel_context(page: PromptEditor) -> dict[str, Any]:
    """Return the trials over samples and, if the operator may try the prompt, what it can be tried on."""
    shown: dict[str, Any] = {"trials": sample.trials_of(page.row, actor=page.actor)[:TRIALS]}
    if not (may_try(page) and can_be_tried(page.row)):
        return shown
    begins = page.request.POST.get("begins", "")
    return shown | {
        "may_try": True,
        "uses_model": settings.ENGINE.uses_model,
        "seconds": round(settings.ENGINE.timeout_seconds),
        "is_about_streams": is_about_streams(page.row),
        "begins": begins,
        "subjects": subjects.subjects(page.row, begins),
        "sizes": sample.SIZES,
        "chosen": page.request.POST.get("subject", ""),
    }


PANEL = Panel("operator/prompts/trials.html", panel_context)


class TriesPrompt(PromptEditor):
    """A view for operators who may try prompts."""

    def has_permission(self) -> bool:
        return may_try(self)

    def rows(self) -> QuerySet[PromptResource]:
        return super().rows().select_related("active_version")


class TryPrompt(TriesPrompt):
    """Shows the results of the editor's text and the active version for a session. Writes nothing."""

    route, name = "<path:pk>/try/", "try"
    http_method_names = ["post"]
    tried: Session | MemoryStream | None = None

    def people(self) -> Collection[int]:
        """Return the person of the session or stream."""
        return people_of(self.tried) if self.tried else ()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        shown = {} if request.POST.get("step") == "find" else self._tried(TrialForm(request.POST))
        if request.headers.get("HX-Request"):
            return render(request, "operator/prompts/trial.html", {"resource": self.row} | shown)
        return self.editor(VersionForm(request.POST), **shown)

    def _tried(self, form: TrialForm) -> dict[str, Any]:
        """Try the text. If that fails, return the reason."""
        if not form.is_valid():
            return {"problem": " ".join(f"{field.label}: {error}" for field in form for error in field.errors)}
        subject = subjects.subject_with(self.row, form.cleaned_data["subject"])
        if subject is None:
            return {"problem": "The session or memory text no longer exists. Choose another."}
        try:
            trial = try_prompt(self._version_with(form.cleaned_data["content"]), subject)
        except CannotTry as error:
            return {"problem": str(error)}
        self.tried = subject
        return {
            "subject": subject,
            "given": given(trial.input),
            "trial": trial,
            "sides": subjects.sides(trial, self.row.active_version),
            "probes": try_probes(trial, subject) if self.request.user.has_perm(SEE_PROBES) else [],
        }

    def _version_with(self, content: str) -> PromptVersion:
        """Return the saved version with this text, or an unsaved one."""
        saved = self.row.versions.filter(content=content).first()
        return saved or PromptVersion(resource=self.row, content=content)


class TrialSubjects(TriesPrompt):
    """Lists the subjects to try a prompt on, filtered by the typed text."""

    route, name = "<path:pk>/subjects/", "subjects"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        found = subjects.subjects(self.row, request.GET.get("begins", ""))
        return render(request, "operator/prompts/subjects.html", {"subjects": found})
