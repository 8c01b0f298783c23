"""Applications in the admin. Columns and filters for applications appear only if there are several.

The attribute `applications` of an admin class contains the ORM lookups from its rows to their application.
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

APPLICATION_NAME = "application_name"  # annotation with the name that the column shows
KEPT_SECONDS = 60


def are_several() -> bool:
    """Return whether there is more than one application. Cached for a minute, because every page needs it.

    Always True for operators who are limited to some applications, so they can't find out whether others exist.
    """
    return bool(scope_key()) or bool(cache.get_or_set(SEVERAL, Application.objects.are_several, KEPT_SECONDS))


def are_shown(request: HttpRequest) -> bool:
    return request.user.has_perm("sessions_app.view_application") and are_several()


def of_application(lookups: Sequence[str], application: int) -> Q:
    """Return a filter for rows that belong to an application according to any of the lookups."""
    found = Q()
    for lookup in lookups:
        found |= Q(**{lookup: application})
    return found


def with_application_names(rows: Any, lookups: Sequence[str]) -> Any:
    names: list[Combinable] = [F(f"{lookup}__name") for lookup in lookups]
    return rows.annotate(**{APPLICATION_NAME: Coalesce(*names) if len(names) > 1 else names[0]})


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
