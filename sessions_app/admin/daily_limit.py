"""Daily limits of keys and applications, and their usage of the last days."""

from typing import Any

from django.contrib import admin
from django.contrib.humanize.templatetags.humanize import intcomma
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin
from sessions_app.admin.links import change_url, link_to, page_url
from sessions_app.admin.views.base import FormPage, may_see
from sessions_app.models import ApiKey, Application, DailyLimit, DailyUsage
from sessions_app.models.daily_limit import UNITS, Amounts, Kind, Standing, Subject, today

HELP = {
    "requests": "After the limit is reached, requests get status 429.",
    "model_calls": "After the limit is reached, jobs wait until the next day.",
    "usd": "Only models with a known price count. After the limit is reached, jobs wait until the next day.",
}
DAYS = 7
KINDS: dict[type[Model], Kind] = {ApiKey: Kind.KEY, Application: Kind.APPLICATION}


class UsageForm(FormPage[Any]):
    """The form of a key, of an application or of their limits, below their usage."""

    before = "operator/limits/usage.html"

    def context(self) -> dict[str, Any]:
        return usage_context(self.request, self.row)


def usage_context(request: HttpRequest, row: Model) -> dict[str, Any]:
    """Return the context of `limits/usage.html`; empty if the operator may not see usage.

    Args:
        row: A key, an application, or the limits of one.
    """
    if not request.user.has_perm("sessions_app.view_dailyusage"):
        return {}
    subject = row.subject if isinstance(row, DailyLimit) else Subject(KINDS[type(row)], row.pk)
    [standing] = DailyUsage.objects.standings([subject])
    days = {today(): standing.used} | DailyUsage.objects.by_day(subject, DAYS)
    own = DailyLimit.objects.filter(**{subject.kind: subject.pk}).first()
    usage = {
        "names": [unit.capitalize() if unit.islower() else unit for unit in UNITS.values()],
        "limits": [standing.limits.get(name) for name in UNITS],
        "days": [(day, _amounts(used, standing if day == standing.day else None)) for day, used in days.items()],
        "has_own": own is not None,
        "limits_url": "" if isinstance(row, DailyLimit) else _limits_url(request, subject, own),
    }
    return {"usage": usage}


def _amounts(used: Amounts, standing: Standing | None) -> list[tuple[Any, bool]]:
    """Return amounts, each with whether its limit is reached today."""
    return [(used.of(name), standing is not None and standing.is_used_up(name)) for name in UNITS]


def _limits_url(request: HttpRequest, subject: Subject, own: DailyLimit | None) -> str:
    if not request.user.has_perm(f"sessions_app.{'change' if own else 'add'}_dailylimit"):
        return ""
    return change_url(own) if own else page_url(DailyLimit, "add", **{subject.kind: subject.pk})


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
