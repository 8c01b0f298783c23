"""What somebody may use a day, and what they have used, short to write in tests."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from sessions_app.daily_limits import behind, meter
from sessions_app.models import ApiKey, DailyLimit, DailyUsage, UserProfile
from sessions_app.models.daily_limit import Amounts, Kind, Subject


def limit(whose: ApiKey | UserProfile, **amounts: Any) -> DailyLimit:
    """Limit a key or a person; who calls next is known to have the limit."""
    column = "key" if isinstance(whose, ApiKey) else "user"
    made, _ = DailyLimit.objects.update_or_create(**{column: whose}, defaults=amounts)
    begin_again()
    return made


def begin_again() -> None:
    """Be a process that has just begun; the one before has written what it counted."""
    behind.flush()
    meter.forget()


def used(whose: ApiKey | UserProfile) -> Amounts:
    """Return what a key or a person has used today, as it is written."""
    kind = Kind.KEY if isinstance(whose, ApiKey) else Kind.PERSON
    behind.flush()
    return DailyUsage.objects.standings([Subject(kind, whose.pk)])[0].used


def next_day() -> None:
    """Let all that was used have been used a day earlier."""
    begin_again()
    DailyUsage.objects.update(day=F("day") - timedelta(days=1))
