"""Applications in the admin: seen where there are several, and by nobody else.

Lists then have a column and a filter; each list says by `applications` how its rows lead there.
"""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.core.cache import cache
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from sessions_app.limited_operators import scope_key
from sessions_app.models import Application
from sessions_app.models.application import SEVERAL

NAMED = "application_name"  # the annotation that the column shows
KEPT_SECONDS = 60


def are_several() -> bool:
    """Return True if there is more than one application; every page asks, so a process may be a minute late.

    Operators who are limited to some don't see whether there are others; they are limited because there are.
    """
    return bool(scope_key()) or bool(cache.get_or_set(SEVERAL, Application.objects.are_several, KEPT_SECONDS))


def are_shown(request: HttpRequest) -> bool:
    """Return True if the sidebar leads to applications: an installation with one sees nothing of it."""
    return request.user.has_perm("sessions_app.view_application") and are_several()


def of_application(lookups: Sequence[str], application: int) -> Q:
    """Return the condition that rows belong to an application, by whichever of the lookups leads to one."""
    found = Q()
    for lookup in lookups:
        found |= Q(**{lookup: application})
    return found


def named(rows: Any, lookups: Sequence[str]) -> Any:
    """Add the names of the applications that rows belong to."""
    names: list[Combinable] = [F(f"{lookup}__name") for lookup in lookups]
    return rows.annotate(**{NAMED: Coalesce(*names) if len(names) > 1 else names[0]})


class ApplicationFilter(admin.SimpleListFilter):
    """Rows of one application."""

    title = "application"
    parameter_name = "of_application"

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        self._admin = model_admin

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(application.pk), application.name) for application in Application.objects.all()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = {pk for pk, _ in self.lookup_choices} & {self.value()}
        for pk in chosen:
            queryset = queryset.filter(self._admin.of_application(int(str(pk))))
        return queryset
