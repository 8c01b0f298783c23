"""The list of prompts; each prompt has an editor instead of a form."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from moments_app.models import PromptResource
from moments_app.operator.admin.filters import TitleFilter
from moments_app.operator.views.prompt import (
    ActivateVersion,
    AddVersion,
    CompareVersions,
    PromptEditor,
)
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin
from sessions_app.limited_operators import is_limited


@admin.register(PromptResource)
class PromptResourceAdmin(PageAdmin):
    """Prompt resources, each with the active version."""

    list_display = ("name", "address", "version", "active_since")
    applications = ("application",)
    list_filter = (("purpose", TitleFilter),)
    list_select_related = ("active_version__resource",)
    search_fields = ("uri", "name")
    ordering = ("uri",)
    fields = (("name", "uri", "purpose"),)
    change_page = PromptEditor
    views = (
        AddVersion,
        ActivateVersion,
        CompareVersions,
    )

    @admin.display(description="Address", ordering="uri")
    def address(self, prompt: PromptResource) -> str:
        return prompt.uri

    @admin.display(description="Active version", empty_value="none")
    def version(self, prompt: PromptResource) -> int | None:
        return prompt.active_version.number if prompt.active_version else None

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Include the application if there are several."""
        return (*self.fields, "application") if are_several() else self.fields

    def has_change_permission(self, request: HttpRequest, obj: PromptResource | None = None) -> bool:
        """Forbid changes of global prompts to operators who are limited to some applications."""
        is_others = obj is not None and obj.application_id is None and is_limited(request.user)
        return not is_others and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # moments refer to the version that created them
