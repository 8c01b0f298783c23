"""The list of applications, and the form that creates or renames one."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from sessions_app.admin.base import PageAdmin, one_line
from sessions_app.admin.daily_limit import UsageForm
from sessions_app.models import ApiKey, Application, UserProfile


def _number_of(rows: QuerySet[Any]) -> Subquery:
    numbers = rows.filter(application=OuterRef("pk")).order_by().values("application").annotate(number=Count("pk"))
    return Subquery(numbers.values("number"), output_field=IntegerField())


@admin.register(Application)
class ApplicationAdmin(PageAdmin):
    """Tenants. They are created here or by `manage.py create_application`, and never deleted."""

    list_display = ("name", "people", "keys", "made_at")
    search_fields = search_prefixes = ("name",)
    ordering = ("name",)
    fields = ("name",)
    form_page = UsageForm

    def get_queryset(self, request: HttpRequest) -> QuerySet[Application]:
        queryset: QuerySet[Application] = super().get_queryset(request)
        keys = ApiKey.objects.filter(revoked_at=None)
        return queryset.annotate(people=_number_of(UserProfile.objects.all()), keys=_number_of(keys))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # deleting it would delete its people, who must be erased one by one

    @admin.display(description="People", empty_value="0")
    def people(self, application: Any) -> Any:
        return application.people

    @admin.display(description="Keys", empty_value="0")
    def keys(self, application: Any) -> Any:
        return application.keys

    @admin.display(description="Created", ordering="created_at")
    def made_at(self, application: Application) -> str:
        return one_line(application.created_at)
