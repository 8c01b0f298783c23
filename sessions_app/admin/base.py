"""What the operator's pages have in common."""

from typing import Any, ClassVar

from django.contrib.admin import ShowFacets
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextInputWidget


class PageAdmin(ModelAdmin):  # type: ignore[misc]
    """Lists that stay quick with a million rows: no second count, no query a row."""

    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # a count a choice, each over the whole table
    list_per_page = 50
    compressed_fields = False
    formfield_overrides: ClassVar = {ArrayField: {"widget": UnfoldAdminTextInputWidget}}
    warn_unsaved_form = True
    when_empty = ""  # what a list says that has nothing yet

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Named after what it lists; Django's own name is an order: select one to change."""
        title = {"title": str(self.opts.verbose_name_plural).capitalize()}
        response: HttpResponse = super().changelist_view(request, title | (extra_context or {}))
        return response

    def around(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """What the templates before and after a row's form show; a page that has some says so."""
        return {}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST" and not self.get_actions(request):
            raise PermissionDenied  # Django would say that no action was chosen
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        obj = self.get_object(request, object_id) if object_id else None
        context = (extra_context or {}) | (self.around(request, obj) if obj else {})
        response: HttpResponse = super().changeform_view(request, object_id, form_url, context)
        return response


class ReadOnlyAdmin(PageAdmin):
    """Rows that are looked at and never edited by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def prefix_search(queryset: QuerySet[Any], term: str, *fields: str) -> QuerySet[Any]:
    """Rows one of whose fields begins with the term: what an index can serve.

    Args:
        queryset: to search in.
        term: as the operator typed it; blank finds everything.
        fields: names as in `filter`.
    """
    term = term.strip().replace("\0", "")
    if not term:
        return queryset
    found = queryset.none()
    for field in fields:
        found = found | queryset.filter(**{f"{field}__startswith": term})
    return found
