"""Names of actors for the admin. If the actor is an API key, jobs and events store only its prefix."""

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Substr
from django.http import HttpRequest

from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.admin.views import may_see
from sessions_app.models import ApiKey
from sessions_app.models.event import KEY_ACTOR, named_actor


def with_key_names(request: HttpRequest, rows: QuerySet[Any], column: str) -> Any:
    """Annotate rows with `key_name`, the name of the key in their actor column, if the operator may see keys."""
    if not may_see(request, ApiKey):
        return rows.annotate(key_name=Value(""))
    named = ApiKey.objects.filter(prefix=Substr(OuterRef(column), len(KEY_ACTOR) + 1)).values("name")
    return rows.annotate(key_name=Subquery(named[:1]))


def name_of(request: HttpRequest, actor: str) -> str:
    """Return an actor's name for display. For an API key, return the key's name if the operator may see keys."""
    if not actor.startswith(KEY_ACTOR) or not may_see(request, ApiKey):
        return named_actor(actor)
    return named_actor(
        actor, ApiKey.objects.filter(prefix=actor.removeprefix(KEY_ACTOR)).values_list("name", flat=True).first()
    )


class RequestedAdmin(ReadOnlyAdmin):
    """Base class of admins for rows that an actor requested. `by` names the actor."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        named: QuerySet[Any] = with_key_names(request, super().get_queryset(request), "requested_by")
        return named

    @admin.display(description="Requested by", ordering="requested_by")
    def by(self, row: Any) -> str:
        return named_actor(row.requested_by, row.key_name)
