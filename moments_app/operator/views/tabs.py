"""Tabs of a row: the first stands in place of Django's form, the last one shows that form."""

from typing import Any

from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from sessions_app.admin.links import page_url
from sessions_app.admin.views.base import Row, RowView


class FirstTab(RowView[Row]):
    """The tab in place of Django's form; what is posted here is that form, which the tab of details shows."""

    name = "change"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form: HttpResponse = self.admin.changeform_view(request, str(self.row.pk))
        return form


class DetailsTab(RowView[Row]):
    """What an operator may see and write of the row itself, in Django's form."""

    route, name, tab = "<int:pk>/details/", "details", "Details"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form_url = page_url(type(self.row), "change", self.row.pk)
        form: HttpResponse = self.admin.changeform_view(request, str(self.row.pk), form_url)
        return form

    post = get  # a browser's script has the form sent to the page that it is on


def tabs_of(admin: Any, request: HttpRequest, row: Model, current: str, query: str = "") -> list[dict[str, Any]]:
    """Return the tabs that this operator may open, and which of them is open."""
    return [
        {"title": view.tab, "url": page_url(type(row), view.name, row.pk) + query, "is_current": view.name == current}
        for view in admin.tabs
        if request.user.has_perms(view.needs)
    ]
