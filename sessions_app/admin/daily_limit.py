"""Daily limits of keys and applications."""

from typing import Any

from django.contrib import admin
from django.contrib.humanize.templatetags.humanize import intcomma
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin
from sessions_app.admin.links import link_to
from sessions_app.admin.views.base import may_see
from sessions_app.admin.views.daily_limit import UsageForm
from sessions_app.models import ApiKey, DailyLimit
from sessions_app.models.daily_limit import UNITS

HELP = {
    "requests": "After the limit is reached, requests get status 429.",
    "model_calls": "After the limit is reached, jobs wait until the next day.",
    "usd": "Only models with a known price count. After the limit is reached, jobs wait until the next day.",
}


@admin.register(DailyLimit)
class DailyLimitAdmin(PageAdmin):
    """Limits that replace the default limits in the settings for one key or application."""

    list_display = ("name", "of", *(f"most_{name}" for name in UNITS))
    applications = ("application", "key__application")
    list_select_related = ("key", "application")
    search_fields = search_prefixes = ("key__name",)
    search_help_text = "Start of a key's name"
    ordering = ("-id",)
    raw_id_fields = ("key",)
    form_page = UsageForm
    when_empty = (
        "No key or application has its own limits. The settings DAILY_LIMITS__… apply to all keys and applications."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[DailyLimit]:
        """Exclude the limits of keys if the operator may not see keys."""
        limits: QuerySet[DailyLimit] = super().get_queryset(request)
        return limits if may_see(request, ApiKey) else limits.filter(key=None)

    def get_fields(self, request: HttpRequest, obj: DailyLimit | None = None) -> Any:
        whose = ("whose",) if obj else ("key", "application") if are_several() else ("key",)
        return (*whose, *UNITS)

    def get_readonly_fields(self, request: HttpRequest, obj: DailyLimit | None = None) -> Any:
        return ("whose",) if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in HELP:
            kwargs["help_text"] = f"{HELP[db_field.name]} Leave blank to use the setting. 0 means no limit."
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @admin.display(description="Owner")
    def name(self, limit: DailyLimit) -> str:
        return str(limit)

    @admin.display(description="Owner")
    def whose(self, limit: DailyLimit) -> str:
        return link_to(limit.key or limit.application)

    @admin.display(description="Type")
    def of(self, limit: DailyLimit) -> str:
        return limit.subject.kind.value

    @admin.display(description="Requests")
    def most_requests(self, limit: DailyLimit) -> str:
        return _shown(limit.requests)

    @admin.display(description="Model calls")
    def most_model_calls(self, limit: DailyLimit) -> str:
        return _shown(limit.model_calls)

    @admin.display(description="USD")
    def most_usd(self, limit: DailyLimit) -> str:
        return _shown(limit.usd)


def _shown(most: Any) -> str:
    """Format an amount for a column. A dash means the default in the settings."""
    return "–" if most is None else intcomma(most) if most else "no limit"
