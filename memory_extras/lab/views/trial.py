"""Trials of a prompt text: on a session or stream, and over a sample of them."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.utils.functional import cached_property

from memory_extras.lab.models import SEE_PROBES, PromptTrial
from memory_extras.lab.probes.trial import try_probes
from memory_extras.lab.trials import sample
from memory_extras.lab.trials.parts import describe_input, is_about_streams, readable_sides
from memory_extras.lab.trials.try_prompt import CannotTry, can_be_tried, try_prompt
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from moments_app.operator.admin.prompt import PANELS, Panel, PromptEditor, TextForm, VersionForm
from moments_app.operator.person_pages import READ_PERSON, SEE_MEMORY
from sessions_app.admin.access_log import people_of
from sessions_app.admin.base import add_views
from sessions_app.admin.links import page_url
from sessions_app.admin.views import parse_number
from sessions_app.models import Session

TRIALS = 10  # maximum number of trials in the list


class TrialForm(TextForm):
    subject = forms.IntegerField(
        label="Try on", min_value=1, max_value=2**62, error_messages={"required": "Choose one from the list."}
    )


def may_try(page: PromptEditor) -> bool:
    """Return whether the operator may try prompts. A trial costs money, and shows messages."""
    may_change = page.admin.has_change_permission(page.request)
    return bool(may_change and page.request.user.has_perms((READ_PERSON, *SEE_MEMORY)))


def panel_context(page: PromptEditor) -> dict[str, Any]:
    """Return the trials over samples and, if the operator may try the prompt, the sessions or streams to try it on."""
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
        "subjects": sample.subjects(page.row, begins),
        "sizes": sample.SIZES,
        "chosen": page.request.POST.get("subject", ""),
    }


class TrialView(PromptEditor):
    """A view for operators who may try prompts."""

    def has_permission(self) -> bool:
        return may_try(self)

    def rows(self) -> QuerySet[PromptResource]:
        return super().rows().select_related("active_version")


class TryPrompt(TrialView):
    """Shows the results of the editor's text and the active version for a session. Writes nothing."""

    route, name = "<path:pk>/try/", "try"
    http_method_names = ["post"]
    tried: Session | MemoryStream | None = None

    def people(self) -> Collection[int]:
        return people_of(self.tried) if self.tried else ()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        shown = {} if request.POST.get("step") == "find" else self._tried(TrialForm(request.POST))
        if request.headers.get("HX-Request"):
            return render(request, "operator/prompts/trial.html", {"resource": self.row} | shown)
        return self.editor(VersionForm(request.POST), **shown)

    def _tried(self, form: TrialForm) -> dict[str, Any]:
        if not form.is_valid():
            return {"problem": " ".join(f"{field.label}: {error}" for field in form for error in field.errors)}
        subject = sample.subject_with(self.row, form.cleaned_data["subject"])
        if subject is None:
            return {"problem": "The session or memory text no longer exists. Choose another."}
        try:
            trial = try_prompt(self._version_with(form.cleaned_data["content"]), subject)
        except CannotTry as error:
            return {"problem": str(error)}
        self.tried = subject
        return {
            "subject": subject,
            "given": describe_input(trial.input),
            "trial": trial,
            "sides": readable_sides(trial, self.row.active_version),
            "probes": try_probes(trial, subject) if self.request.user.has_perm(SEE_PROBES) else [],
        }

    def _version_with(self, content: str) -> PromptVersion:
        """Return the saved version with this text, or an unsaved one."""
        saved = self.row.versions.filter(content=content).first()
        return saved or PromptVersion(resource=self.row, content=content)


class TrialSubjects(TrialView):
    """Lists the subjects to try a prompt on, filtered by the typed text."""

    route, name = "<path:pk>/subjects/", "subjects"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        found = sample.subjects(self.row, request.GET.get("begins", ""))
        return render(request, "operator/prompts/subjects.html", {"subjects": found})


# --- over a sample, one session or stream after the other, with the total figures ---


class SampleForm(forms.Form):
    size = forms.TypedChoiceField(choices=[(size, size) for size in sample.SIZES], coerce=int)


class SampleSubjectForm(forms.Form):
    subject = forms.IntegerField(min_value=1, max_value=2**62)


class StartSample(TrialView):
    """Chooses a sample, and redirects to the page that tries it."""

    route, name = "<path:pk>/sample/<int:number>/", "sample"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        version = get_object_or_404(PromptVersion, resource=self.row, number=self.kwargs["number"])
        form = SampleForm(request.POST)
        chosen = sample.sample_of(self.row, form.cleaned_data["size"]) if form.is_valid() else []
        if not chosen:
            messages.error(request, "There is no session or memory text to try the prompt on yet.")
            return self.go_back(version)
        trial = sample.start_trial(version, len(chosen), requested_by=self.actor)
        return HttpResponseRedirect(url_of(trial, chosen))


def url_of(trial: PromptTrial, chosen: list[int]) -> str:
    """Return the URL of a trial, which contains its sample."""
    on = ",".join(map(str, chosen))
    return page_url(PromptResource, ShowTrial.name, trial.version.resource_id, trial.pk, on=on)


class ShowTrial(TrialView):
    """A trial with its figures. The page requests the remaining items of the sample one after the other."""

    route, name = "<path:pk>/trials/<int:trial>/", "trial"
    template_name = "operator/prompts/sample.html"

    @cached_property
    def trial(self) -> PromptTrial:
        return get_object_or_404(sample.trials_of(self.row, actor=self.actor), pk=self.kwargs["trial"])

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        left = self.chosen[self.trial.tried :]
        return self.page(**self.figures(), left=left, seconds=round(settings.ENGINE.timeout_seconds))

    def figures(self) -> dict[str, Any]:
        return {"trial": self.trial, "trials": [self.trial]}

    @property
    def chosen(self) -> list[int]:
        """The sample in order. It is only in the URL, and not stored."""
        numbers = [parse_number(part) for part in self.request.GET.get("on", "").split(",")]
        return [number for number in numbers if number is not None][: self.trial.size]


class TryNextOfSample(ShowTrial):
    """Tries the version on one item of the sample, and adds the result to the figures."""

    route, name = "<path:pk>/trials/<int:trial>/next/", "try_one"
    http_method_names = ["post"]
    tried: Session | MemoryStream | None = None

    def people(self) -> Collection[int]:
        return people_of(self.tried) if self.tried else ()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        came = self._try_next()
        if request.headers.get("HX-Request"):
            del self.trial  # reload the trial, because its figures have changed
            return render(request, "operator/prompts/sample_one.html", self.figures() | came)
        if problem := came.get("problem"):
            messages.error(request, problem)
        return HttpResponseRedirect(url_of(self.trial, self.chosen))

    def _try_next(self) -> dict[str, Any]:
        form = SampleSubjectForm(self.request.POST)
        subject = sample.subject_with(self.row, form.cleaned_data["subject"]) if form.is_valid() else None
        if subject is None:
            return {"problem": "The session or memory text no longer exists. Choose another."}
        try:
            result = try_prompt(self.trial.version, subject)
        except CannotTry as error:
            return {"subject": subject, "problem": str(error)}
        self.tried = subject
        probes = try_probes(result, subject) if self.request.user.has_perm(SEE_PROBES) else []
        sides = readable_sides(result, self.row.active_version)
        outcome = sample.compared(sides)
        if not sample.add_result(self.trial, result, outcome, probes):
            return {"subject": subject, "problem": "All trials of this sample are done."}
        return {"subject": subject, "sides": sides, "outcome": outcome, "given": describe_input(result.input)}


add_views(PromptResource, TryPrompt, TrialSubjects, StartSample, ShowTrial, TryNextOfSample)
PANELS.append(Panel("operator/prompts/trials.html", panel_context))
