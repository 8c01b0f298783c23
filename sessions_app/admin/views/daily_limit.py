"""The usage of the last days, with the limits."""

from typing import Any

from django.db.models import Model
from django.http import HttpRequest

from sessions_app.admin.links import change_url, page_url
from sessions_app.admin.views.base import FormPage
from sessions_app.models import ApiKey, Application, DailyLimit, DailyUsage
from sessions_app.models.daily_limit import UNITS, Amounts, Kind, Standing, Subject, today

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
        request: The request of the page.
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
