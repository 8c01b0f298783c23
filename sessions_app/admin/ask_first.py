"""Actions of lists that ask for confirmation before they change the selected rows."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

Action = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]
ROWS = 20  # the number of rows that the page lists; it only counts the others
AGAIN = ("action", "select_across", ACTION_CHECKBOX_NAME)  # the form fields to send again


def asks_first(warning: str, *, button: str) -> Callable[[Action], Action]:
    """Return a decorator that shows a confirmation page before an action that can't be undone or affects many rows.

    Args:
        warning: What the action will do, for the page.
        button: The label of the page's button.
    """

    def decorate(action: Action) -> Action:
        @wraps(action)
        def asked(admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
            if "sure" in request.POST:
                return action(admin, request, rows)
            count = rows.count()
            context = admin.admin_site.each_context(request) | {
                "title": button,
                "opts": admin.opts,
                "warning": warning,
                "button": button,
                "count": count,
                "rows": rows[:ROWS],
                "more": max(count - ROWS, 0),
                "again": [(name, value) for name in AGAIN for value in request.POST.getlist(name)],
            }
            return TemplateResponse(request, "operator/ask_first.html", context)

        return asked

    return decorate
