"""Prompts: an editor, versions and what differs between them, which one is in force, and trying one out."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST, require_safe

from moments_app.jobs.trial import CannotTry, can_be_tried, try_prompt
from moments_app.models import PromptResource, PromptVersion
from moments_app.models.prompt import NewerVersion
from moments_app.operator.admin import prompt_trial
from moments_app.operator.admin.diff import DiffLine, line_diff
from moments_app.operator.admin.prompt_help import help_for
from sessions_app.admin.base import PageAdmin
from sessions_app.models import Event
from sessions_app.tokens import estimate_tokens

VERSIONS = 50  # a page
LATEST_CHANGES = 10


class TextForm(forms.Form):
    """A prompt's text."""

    content = forms.CharField(label="Text", max_length=100_000, strip=False)

    def clean_content(self) -> str:
        """The text, with line breaks as prompts have them."""
        content: str = self.cleaned_data["content"].replace("\r\n", "\n")
        if not content.strip():
            raise forms.ValidationError("A prompt without a word would leave the model without instructions.")
        return content


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

    old = forms.IntegerField(min_value=1, max_value=2**31 - 1)
    new = forms.IntegerField(min_value=1, max_value=2**31 - 1)


@admin.register(PromptResource)
class PromptResourceAdmin(PageAdmin):
    """A prompt resource with its editor and versions."""

    list_display = ("name", "uri", "purpose", "active_version", "active_since")
    list_filter = ("purpose",)
    list_select_related = ("active_version__resource",)
    search_fields = ("uri", "name")
    ordering = ("uri",)
    fields = (("name", "uri", "purpose"),)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # moments name the version they were made with

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, "moments_app_promptresource"
        return [
            path("<path:pk>/versions/", view(self.add_version), name=f"{name}_add_version"),
            path("<path:pk>/activate/<int:number>/", view(self.activate), name=f"{name}_activate"),
            path("<path:pk>/compare/", view(self.compare), name=f"{name}_compare"),
            path("<path:pk>/try/", view(self.try_out), name=f"{name}_try"),
            path("<path:pk>/subjects/", view(self.subjects), name=f"{name}_subjects"),
            *super().get_urls(),
        ]

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The editor, in place of Django's form: of a resource itself nothing is changed."""
        resource: PromptResource | None = self.get_object(request, unquote(object_id))
        if resource is None:
            gone: HttpResponse = self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
            return gone
        return self._page(request, self._visible(request, resource))

    @method_decorator(require_POST)
    def add_version(self, request: HttpRequest, pk: str) -> HttpResponse:
        """Stores the editor's text as a new version, and puts it in force when asked to."""
        resource = self._editable(request, pk)
        form = VersionForm(request.POST)
        if not form.is_valid():
            return self._page(request, resource, form, status=400)
        try:
            version = self._added(request, resource, form)
        except NewerVersion as error:
            again = VersionForm(request.POST.dict() | {"after": str(error.newest.number)})
            missed = _missed(resource, form.cleaned_data["after"], error.newest)
            return self._page(request, resource, again, status=409, newer=error, missed=missed)
        messages.success(request, f"Saved as version {version.number}.")
        return self._back(resource, version)

    @transaction.atomic
    def _added(self, request: HttpRequest, resource: PromptResource, form: VersionForm) -> PromptVersion:
        written = form.cleaned_data
        by = f"operator:{request.user}"
        version = resource.add_version(written["content"], created_by=by, note=written["note"], after=written["after"])
        self.log_change(request, resource, f"Saved version {version.number}.")
        if "activate" in request.POST:
            self._put_in_force(request, resource, version)
        return version

    @method_decorator(require_POST)
    def activate(self, request: HttpRequest, pk: str, number: int) -> HttpResponse:
        """Puts a version in force."""
        resource = self._editable(request, pk)
        version = get_object_or_404(resource.versions, number=number)
        with transaction.atomic():
            self._put_in_force(request, resource, version)
        return self._back(resource, version)

    def _put_in_force(self, request: HttpRequest, resource: PromptResource, version: PromptVersion) -> None:
        resource.activate(version)
        payload = {"uri": resource.uri, "version": version.number}
        Event.objects.create(type="prompt_activated", actor=f"operator:{request.user}", payload=payload)
        self.log_change(request, resource, f"Put version {version.number} in force.")
        messages.success(request, f"Version {version.number} is in force.")

    @method_decorator(require_safe)
    def compare(self, request: HttpRequest, pk: str) -> HttpResponse:
        """What differs between two versions."""
        resource = self._visible(request, get_object_or_404(PromptResource, pk=pk))
        form = CompareForm(request.GET)
        if not form.is_valid():
            return self._back(resource)
        old, new = (get_object_or_404(resource.versions, number=form.cleaned_data[name]) for name in ("old", "new"))
        shown = {"old": old, "new": new, "compared": (old, new), "hunks": line_diff(old.content, new.content)}
        context = self._about(request, resource) | _versions(resource) | shown
        return render(request, "operator/prompts/compare.html", context)

    @method_decorator(require_POST)
    def try_out(self, request: HttpRequest, pk: str) -> HttpResponse:
        """What the text in the editor makes of a session, beside the version in force; nothing is written."""
        resource = self._triable(request, pk)
        shown = {} if request.POST.get("step") == "find" else self._tried(resource, TrialForm(request.POST))
        if request.headers.get("HX-Request"):
            return render(request, "operator/prompts/trial.html", {"resource": resource} | shown)
        return self._page(request, resource, VersionForm(request.POST), **shown)

    @method_decorator(require_safe)
    def subjects(self, request: HttpRequest, pk: str) -> HttpResponse:
        """What the prompt can be tried on, for the list that follows what is typed."""
        resource = self._triable(request, pk)
        found = prompt_trial.subjects(resource, request.GET.get("begins", ""))
        return render(request, "operator/prompts/subjects.html", {"subjects": found})

    def _tried(self, resource: PromptResource, form: TrialForm) -> dict[str, Any]:
        """What came of a trial, or why there was none."""
        if not form.is_valid():
            told = [f"{field.label}: {error}" for field in form for error in field.errors]
            return {"problem": " ".join(told)}
        subject = prompt_trial.subject_with(resource, form.cleaned_data["subject"])
        if subject is None:
            return {"problem": "What was chosen is not there any more."}
        try:
            trial = try_prompt(_version_of(resource, form.cleaned_data["content"]), subject)
        except CannotTry as error:
            return {"problem": str(error)}
        return {
            "subject": subject,
            "given": prompt_trial.given(trial.work),
            "trial": trial,
            "sides": prompt_trial.sides(trial, resource.active_version),
        }

    # --- what the pages show ---

    def _page(
        self,
        request: HttpRequest,
        resource: PromptResource,
        form: VersionForm | None = None,
        status: int = 200,
        **more: Any,
    ) -> HttpResponse:
        """The editor with all that is around it.

        Args:
            resource: the prompt.
            form: what was typed, to be typed on; None: the version asked for, else that in force, else the newest.
            status: of the answer.
            more: for the template.
        """
        newest = resource.versions.first()
        shown = _asked(request, resource) or resource.active_version or newest
        initial = {"content": shown.content if shown else "", "after": newest.number if newest else 0}
        around = {
            "shown": shown,
            "form": form or VersionForm(initial=initial),
            "tokens": estimate_tokens(shown.content) if shown else 0,
            "help": help_for(resource.purpose),
            "changes": self._changes(resource),
        }
        around |= _versions(resource, before=request.GET.get("before", ""))
        context = self._about(request, resource) | around | self._for_trial(request, resource) | more
        return render(request, "operator/prompts/editor.html", context, status=status)

    def _about(self, request: HttpRequest, resource: PromptResource) -> dict[str, Any]:
        site: dict[str, Any] = self.admin_site.each_context(request)
        return site | {
            "title": str(resource),
            "opts": self.opts,
            "original": resource,
            "resource": resource,
            "may_edit": self.has_change_permission(request, resource),
        }

    def _for_trial(self, request: HttpRequest, resource: PromptResource) -> dict[str, Any]:
        if not can_be_tried(resource) or not self._may_try(request, resource):
            return {}
        begins = request.POST.get("begins", "")
        return {
            "may_try": True,
            "uses_model": settings.ENGINE.uses_model,
            "seconds": round(settings.ENGINE.timeout_seconds),
            "is_about_streams": prompt_trial.is_about_streams(resource),
            "begins": begins,
            "subjects": prompt_trial.subjects(resource, begins),
            "chosen": request.POST.get("subject", ""),
        }

    def _changes(self, resource: PromptResource) -> list[LogEntry]:
        about = ContentType.objects.get_for_model(PromptResource)
        entries = LogEntry.objects.filter(content_type=about, object_id=str(resource.pk))
        return list(entries.select_related("user").order_by("-action_time", "-id")[:LATEST_CHANGES])

    # --- who may what ---

    def _visible(self, request: HttpRequest, resource: PromptResource) -> PromptResource:
        if not self.has_view_permission(request, resource):
            raise PermissionDenied
        return resource

    def _editable(self, request: HttpRequest, pk: str) -> PromptResource:
        resource = get_object_or_404(PromptResource, pk=pk)
        if not self.has_change_permission(request, resource):
            raise PermissionDenied
        return resource

    def _triable(self, request: HttpRequest, pk: str) -> PromptResource:
        resource = get_object_or_404(PromptResource.objects.select_related("active_version"), pk=pk)
        if not self._may_try(request, resource):
            raise PermissionDenied
        return resource

    def _may_try(self, request: HttpRequest, resource: PromptResource) -> bool:
        """A trial costs money, and shows what was said."""
        return self.has_change_permission(request, resource) and request.user.has_perm("sessions_app.view_session")

    def _back(self, resource: PromptResource, version: PromptVersion | None = None) -> HttpResponse:
        url = reverse("admin:moments_app_promptresource_change", args=[resource.pk])
        return HttpResponseRedirect(f"{url}?version={version.number}" if version else url)


def _versions(resource: PromptResource, *, before: str = "") -> dict[str, Any]:
    """A page of versions without their texts, newest first, and the number that the next page begins before."""
    older = resource.versions.filter(number__lt=int(before)) if _is_number(before) else resource.versions.all()
    found = list(older.defer("content")[: VERSIONS + 1])
    return {"versions": found[:VERSIONS], "older": found[VERSIONS - 1].number if len(found) > VERSIONS else None}


def _asked(request: HttpRequest, resource: PromptResource) -> PromptVersion | None:
    number = request.GET.get("version", "")
    return resource.versions.filter(number=int(number)).first() if _is_number(number) else None


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _version_of(resource: PromptResource, content: str) -> PromptVersion:
    """The saved version with this text, else one that is not saved."""
    saved = resource.versions.filter(content=content).first()
    return saved or PromptVersion(resource=resource, content=content)


def _missed(resource: PromptResource, opened: int, newest: PromptVersion) -> list[list[DiffLine]]:
    """What changed since the version the editor was opened on."""
    before = resource.versions.filter(number=opened).first()
    return line_diff(before.content if before else "", newest.content)
