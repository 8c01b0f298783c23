"""Actions on the ticked rows of a list that ask once more before they change anything."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

Action = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]
ROWS = 20  # named on the page; of more only the number is told
AGAIN = ("action", "select_across", ACTION_CHECKBOX_NAME)  # what the list sends


def asks_first(warning: str, *, button: str) -> Callable[[Action], Action]:
    """Return a decorator for an action that can't be taken back, or reaches many: a page asks, as for one row.

    Args:
        warning: what follows from it, for the page.
        button: what the button there says.
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
