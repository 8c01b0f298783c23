"""Trials of a prompt version over a sample of sessions or streams, one after the other, with the total figures."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.utils.functional import cached_property

from memory_extras.lab.models import PromptTrial
from memory_extras.lab.probes.trial import try_probes
from memory_extras.lab.rights import SEE_PROBES
from memory_extras.lab.trials import sample, subjects
from memory_extras.lab.trials.parts import given
from memory_extras.lab.trials.try_prompt import CannotTry, try_prompt
from memory_extras.lab.views.trial import TriesPrompt
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from sessions_app.admin.access_log import people_of
from sessions_app.admin.links import page_url
from sessions_app.admin.views import number_in
from sessions_app.models import Session


class SampleForm(forms.Form):
    """The number of sessions or streams to try a version on."""

    size = forms.TypedChoiceField(choices=[(size, size) for size in sample.SIZES], coerce=int)


class SampleSubjectForm(forms.Form):
    """One item of a sample."""

    subject = forms.IntegerField(min_value=1, max_value=2**62)


class BeginSample(TriesPrompt):
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
        trial = sample.begin(version, len(chosen), requested_by=self.actor)
        return HttpResponseRedirect(url_of(trial, chosen))


def url_of(trial: PromptTrial, chosen: list[int]) -> str:
    """Return the URL of a trial, which contains its sample."""
    on = ",".join(map(str, chosen))
    return page_url(PromptResource, ShowTrial.name, trial.version.resource_id, trial.pk, on=on)


class ShowTrial(TriesPrompt):
    """A trial with its figures. The page requests the remaining items of the sample one after the other."""

    route, name = "<path:pk>/trials/<int:trial>/", "trial"
    template_name = "operator/prompts/sample.html"

    @cached_property
    def trial(self) -> PromptTrial:
        """The trial in the URL."""
        return get_object_or_404(sample.trials_of(self.row, actor=self.actor), pk=self.kwargs["trial"])

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        left = self.chosen[self.trial.tried :]
        return self.page(**self.figures(), left=left, seconds=round(settings.ENGINE.timeout_seconds))

    def figures(self) -> dict[str, Any]:
        """Return the trial for its template, and for the table of several trials."""
        return {"trial": self.trial, "trials": [self.trial]}

    @property
    def chosen(self) -> list[int]:
        """The sample in order. It is only in the URL, and not stored."""
        numbers = [number_in(part) for part in self.request.GET.get("on", "").split(",")]
        return [number for number in numbers if number is not None][: self.trial.size]


class TryOneOfSample(ShowTrial):
    """Tries the version on one item of the sample, and adds the result to the figures."""

    route, name = "<path:pk>/trials/<int:trial>/next/", "try_one"
    http_method_names = ["post"]
    tried: Session | MemoryStream | None = None

    def people(self) -> Collection[int]:
        """Return the person of the session or stream."""
        return people_of(self.tried) if self.tried else ()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        came = self._came()
        if request.headers.get("HX-Request"):
            del self.trial  # its figures have changed
            return render(request, "operator/prompts/sample_one.html", self.figures() | came)
        if problem := came.get("problem"):
            messages.error(request, problem)
        return HttpResponseRedirect(url_of(self.trial, self.chosen))

    def _came(self) -> dict[str, Any]:
        """Try it. Return the result, or why it failed."""
        form = SampleSubjectForm(self.request.POST)
        subject = subjects.subject_with(self.row, form.cleaned_data["subject"]) if form.is_valid() else None
        if subject is None:
            return {"problem": "The session or memory text no longer exists. Choose another."}
        try:
            made = try_prompt(self.trial.version, subject)
        except CannotTry as error:
            return {"subject": subject, "problem": str(error)}
        self.tried = subject
        probes = try_probes(made, subject) if self.request.user.has_perm(SEE_PROBES) else []
        sides = subjects.sides(made, self.row.active_version)
        outcome = sample.compared(sides)
        if not sample.note(self.trial, made, outcome, probes):
            return {"subject": subject, "problem": "All trials of this sample are done."}
        return {"subject": subject, "sides": sides, "outcome": outcome, "given": given(made.input)}
