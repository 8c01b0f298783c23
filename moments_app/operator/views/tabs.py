"""Tabs of a row. The first one replaces Django's form, and the last one shows that form."""

from typing import Any

from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from sessions_app.admin.links import page_url
from sessions_app.admin.views.base import Row, RowView


class FirstTab(RowView[Row]):
    """The tab that replaces Django's form. Posts to it submit that form, which the details tab shows."""

    name = "change"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form: HttpResponse = self.admin.changeform_view(request, str(self.row.pk))
        return form


class DetailsTab(RowView[Row]):
    """The fields of the row that an operator may see and edit, in Django's form."""

    route, name, tab = "<int:pk>/details/", "details", "Details"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form_url = page_url(type(self.row), "change", self.row.pk)
        form: HttpResponse = self.admin.changeform_view(request, str(self.row.pk), form_url)
        return form

    post = get  # a browser script submits the form to the page's own URL


def tabs_of(admin: Any, request: HttpRequest, row: Model, current: str, query: str = "") -> list[dict[str, Any]]:
    """Return the tabs that this operator may open. The current one is marked."""
    return [
        {"title": view.tab, "url": page_url(type(row), view.name, row.pk) + query, "is_current": view.name == current}
        for view in admin.tabs
        if request.user.has_perms(view.needs)
    ]
