"""Prompts: an editor, versions, and which one is in force."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST

from moments_app.models import PromptResource, PromptVersion
from sessions_app.admin.base import PageAdmin
from sessions_app.models import Event


class VersionForm(forms.Form):
    """The editor."""

    content = forms.CharField(max_length=100_000, strip=False)
    note = forms.CharField(max_length=255, required=False)

    def clean_content(self) -> str:
        """The text, with line breaks as prompts have them."""
        content: str = self.cleaned_data["content"].replace("\r\n", "\n")
        if not content.strip():
            raise forms.ValidationError("A prompt without a word would leave the model without instructions.")
        return content


@admin.register(PromptResource)
class PromptResourceAdmin(PageAdmin):
    """A prompt resource with its editor and versions."""

    list_display = ("name", "uri", "purpose", "active_version")
    list_filter = ("purpose",)
    list_select_related = ("active_version__resource",)
    search_fields = ("uri", "name")
    ordering = ("uri",)
    fields = (("name", "uri", "purpose"),)
    change_form_outer_after_template = "admin/prompt_versions.html"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name", "uri", "purpose") if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # moments name the version they were made with

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<path:pk>/versions/", view(self.add_version), name="moments_app_promptresource_add_version"),
            path("<path:pk>/activate/<int:number>/", view(self.activate), name="moments_app_promptresource_activate"),
            *super().get_urls(),
        ]

    def around(self, request: HttpRequest, obj: PromptResource) -> dict[str, Any]:
        """All versions, and the one in the editor: that asked for, else the active, else the newest."""
        versions = list(obj.versions.all()[:200])
        asked = request.GET.get("version")
        shown = next((version for version in versions if str(version.number) == asked), None)
        return {
            # The editor has buttons of its own; there is nothing else to save.
            "show_save": False,
            "show_save_and_continue": False,
            "show_save_and_add_another": False,
            "resource": obj,
            "versions": versions,
            "shown": shown or obj.active_version or (versions[0] if versions else None),
            "may_edit": self.has_change_permission(request, obj),
            "add_version_url": reverse("admin:moments_app_promptresource_add_version", args=[obj.pk]),
        }

    @method_decorator(require_POST)
    def add_version(self, request: HttpRequest, pk: str) -> HttpResponse:
        """Stores the editor's text as a new version, and puts it in force when asked to."""
        resource = self._editable(request, pk)
        form = VersionForm(request.POST)
        if not form.is_valid():
            messages.error(
                request, "; ".join(f"{name}: {' '.join(map(str, texts))}" for name, texts in form.errors.items())
            )
            return self._back(resource)
        with transaction.atomic():
            version = resource.add_version(
                form.cleaned_data["content"],
                created_by=f"operator:{request.user}",
                note=form.cleaned_data["note"],
            )
            if "activate" in request.POST:
                self._put_in_force(request, resource, version)
        messages.success(request, f"Saved as version {version.number}.")
        return self._back(resource, version)

    @method_decorator(require_POST)
    def activate(self, request: HttpRequest, pk: str, number: int) -> HttpResponse:
        """Puts a version in force."""
        resource = self._editable(request, pk)
        version = get_object_or_404(resource.versions, number=number)
        with transaction.atomic():
            self._put_in_force(request, resource, version)
        return self._back(resource, version)

    def _editable(self, request: HttpRequest, pk: str) -> PromptResource:
        resource = get_object_or_404(PromptResource, pk=pk)
        if not self.has_change_permission(request, resource):
            raise PermissionDenied
        return resource

    def _put_in_force(self, request: HttpRequest, resource: PromptResource, version: PromptVersion) -> None:
        resource.activate(version)
        payload = {"uri": resource.uri, "version": version.number}
        Event.objects.create(type="prompt_activated", actor=f"operator:{request.user}", payload=payload)
        self.log_change(request, resource, f"Put version {version.number} in force.")
        messages.success(request, f"Version {version.number} is in force.")

    def _back(self, resource: PromptResource, version: PromptVersion | None = None) -> HttpResponse:
        url = reverse("admin:moments_app_promptresource_change", args=[resource.pk])
        return HttpResponseRedirect(f"{url}?version={version.number}" if version else url)
