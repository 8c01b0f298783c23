"""What somebody may use a day, and what they have used, short to write in tests."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from sessions_app.daily_limits import behind, meter
from sessions_app.models import ApiKey, Application, DailyLimit, DailyUsage, UserProfile
from sessions_app.models.daily_limit import COLUMNS, Amounts, Kind, Subject

Whose = ApiKey | UserProfile | Application


def limit(whose: Whose, **amounts: Any) -> DailyLimit:
    """Limit a key or a person; who calls next is known to have the limit."""
    named: dict[str, Any] = {COLUMNS[_kind(whose)]: whose}
    made, _ = DailyLimit.objects.update_or_create(**named, defaults=amounts)
    begin_again()
    return made


def begin_again() -> None:
    """Be a process that has just begun; the one before has written what it counted."""
    behind.flush()
    meter.forget()


def used(whose: Whose) -> Amounts:
    """Return what a key or a person has used today, as it is written."""
    behind.flush()
    return DailyUsage.objects.standings([Subject(_kind(whose), whose.pk)])[0].used


def _kind(whose: Whose) -> Kind:
    return {ApiKey: Kind.KEY, UserProfile: Kind.PERSON, Application: Kind.APPLICATION}[type(whose)]


def next_day() -> None:
    """Let all that was used have been used a day earlier."""
    begin_again()
    DailyUsage.objects.update(day=F("day") - timedelta(days=1))
