"""Short ways to set daily limits in tests, and to read usage."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from sessions_app.models import ApiKey, Application, DailyLimit, DailyUsage
from sessions_app.models.daily_limit import Amounts, Subject, SubjectKind, meter, usage_writer

Whose = ApiKey | Application


def limit(whose: Whose, **amounts: Any) -> DailyLimit:
    """Limit a key or an application, from the next call on."""
    named: dict[str, Any] = {_kind(whose): whose}
    made, _ = DailyLimit.objects.update_or_create(**named, defaults=amounts)
    begin_again()
    return made


def begin_again() -> None:
    """Simulate a new process, after the previous one has written its counts."""
    usage_writer.flush()
    meter.forget()


def used(whose: Whose) -> Amounts:
    """Return the stored usage of a key or an application today."""
    usage_writer.flush()
    return DailyUsage.objects.usage_statuses([Subject(_kind(whose), whose.pk)])[0].used


def _kind(whose: Whose) -> SubjectKind:
    return SubjectKind.KEY if isinstance(whose, ApiKey) else SubjectKind.APPLICATION


def next_day() -> None:
    """Move all usage to the day before."""
    begin_again()
    DailyUsage.objects.update(day=F("day") - timedelta(days=1))
