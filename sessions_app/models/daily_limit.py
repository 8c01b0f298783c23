"""The daily limits of keys and applications, and their daily usage.

The SQL function `count_usage` adds amounts to a day's usage, and returns the day's totals and the limits. It never
waits for a lock: if another transaction has locked the day's row, the function inserts another row. So a day may have
several rows, and its usage is their sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import connection, models
from django.db.models import Q, Sum
from django.utils import timezone

from sessions_app.models.api_key import ApiKey
from sessions_app.models.application import Application
from sessions_app.refusals import Refusal

Number = int | Decimal


class SubjectKind(StrEnum):
    """The kinds of subjects that have limits. Each value is the column that refers to the subject."""

    KEY = "key"
    APPLICATION = "application"


UNITS = {"requests": "requests", "model_calls": "model calls", "usd": "USD"}


@dataclass(frozen=True)
class Amounts:
    requests: int = 0
    model_calls: int = 0
    usd: Decimal = Decimal(0)

    def of(self, name: str) -> Number:
        amount: Number = getattr(self, name)
        return amount

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.requests + other.requests, self.model_calls + other.model_calls, self.usd + other.usd)

    def __neg__(self) -> "Amounts":
        return Amounts(-self.requests, -self.model_calls, -self.usd)


@dataclass(frozen=True)
class Subject:
    """A key or an application that has limits."""

    kind: SubjectKind
    pk: int


@dataclass(frozen=True)
class UsageStatus:
    """A subject's usage and limits on one day.

    Args:
        day: The day in UTC.
        limits: The limits, keyed by the name of the amount. Contains only amounts that have a limit.
    """

    subject: Subject
    day: date
    used: Amounts = field(default_factory=Amounts)
    limits: Mapping[str, Number] = field(default_factory=dict)

    def left(self, name: str) -> Number | None:
        """Return the remaining amount, which is negative if the limit is exceeded, or None if there is no limit."""
        limit = self.limits.get(name)
        return None if limit is None else limit - self.used.of(name)

    def is_used_up(self, name: str) -> bool:
        left = self.left(name)
        return left is not None and left <= 0

    def policy(self, name: str) -> str:
        return f"{self.subject.kind}-{name.replace('_', '-')}"

    def message(self, name: str) -> str:
        """Return an error message for a limit that is reached."""
        limit = f"{self.limits[name]:,} {UNITS[name]} a day"
        return f"The daily limit {self.policy(name)} is reached: {limit} for this {self.subject.kind}."

    @property
    def models_used_up(self) -> str:
        """An error message if a limit on model calls is reached, otherwise blank."""
        return next((self.message(name) for name in ("model_calls", "usd") if self.is_used_up(name)), "")


class LimitReached(Refusal):
    """A daily limit is reached."""

    code, status = "daily_limit", 429

    def __init__(self, usage_status: UsageStatus, name: str) -> None:
        super().__init__(f"{usage_status.message(name)} It resets at midnight UTC.")
        self.retry_after = seconds_left()


def today() -> date:
    return timezone.now().astimezone(UTC).date()


def tomorrow() -> datetime:
    return datetime.combine(today() + timedelta(days=1), time(), UTC)


def seconds_left() -> int:
    """Return the seconds until the next day starts, at least 1."""
    return int((tomorrow() - timezone.now()).total_seconds()) + 1


# --- tables ---


class SubjectRow(models.Model):
    """Base class of rows about one subject."""

    key = models.ForeignKey(ApiKey, null=True, blank=True, on_delete=models.CASCADE, db_index=False)
    application = models.ForeignKey(Application, null=True, blank=True, on_delete=models.CASCADE, db_index=False)

    class Meta:
        abstract = True

    @property
    def subject(self) -> Subject:
        kind = SubjectKind.KEY if self.key_id is not None else SubjectKind.APPLICATION
        return Subject(kind, getattr(self, f"{kind}_id"))


def _has_one_subject(name: str) -> models.CheckConstraint:
    of_key, of_application = Q(key__isnull=False), Q(application__isnull=False)
    return models.CheckConstraint(condition=(of_key & ~of_application) | (of_application & ~of_key), name=name)


class DailyLimit(SubjectRow):
    requests = models.PositiveBigIntegerField(null=True, blank=True)
    model_calls = models.PositiveBigIntegerField(null=True, blank=True)
    usd = models.DecimalField(
        "USD", max_digits=12, decimal_places=6, null=True, blank=True, validators=[MinValueValidator(0)]
    )

    class Meta:
        constraints = [
            _has_one_subject("daily_limit_of_one"),
            models.UniqueConstraint(fields=["key"], name="daily_limit_of_key"),
            models.UniqueConstraint(fields=["application"], name="daily_limit_of_application"),
        ]

    def __str__(self) -> str:
        return str(self.key or self.application)

    def clean(self) -> None:
        if (self.key_id is None) == (self.application_id is None):
            raise ValidationError("Choose a key or an application, not both.")


class DailyUsageQuerySet(models.QuerySet["DailyUsage"]):
    def by_day(self, subject: Subject, days: int) -> dict[date, Amounts]:
        """Return a subject's usage by day, newest first, without days that have no usage."""
        since = today() - timedelta(days=days - 1)
        rows = self.filter(**{subject.kind: subject.pk}, day__gte=since).order_by("-day").values("day")
        summed: Any = rows.annotate(**{f"sum_{name}": Sum(name) for name in UNITS})
        return {row["day"]: Amounts(*(row[f"sum_{name}"] for name in UNITS)) for row in summed}

    def add(self, used: Mapping[Subject, Amounts], day: date | None = None) -> list[UsageStatus]:
        """Add to the usage of subjects on a day in UTC, by default today. Return the new totals in the same order."""
        day = day or today()
        rows = [[one.kind, one.pk, *(amounts.of(name) for name in UNITS)] for one, amounts in used.items()]
        with connection.cursor() as cursor:
            cursor.execute(_COUNT_SQL, [*map(list, zip(*rows, strict=True)), day])
            counted = cursor.fetchall()
        return [
            UsageStatus(subject, day, Amounts(*row[: len(UNITS)]), _limits(subject.kind, row[len(UNITS) :]))
            for subject, row in zip(used, counted, strict=True)
        ]

    def usage_statuses(self, subjects: Sequence[Subject]) -> list[UsageStatus]:
        return self.add(dict.fromkeys(subjects, Amounts())) if subjects else []


class DailyUsage(SubjectRow):
    """A subject's usage on a day. A day may have several rows (see the module's docstring)."""

    day = models.DateField(help_text="Day in UTC.")
    requests = models.BigIntegerField(default=0)
    model_calls = models.BigIntegerField(default=0)
    usd = models.DecimalField(max_digits=16, decimal_places=6, default=0)

    objects = DailyUsageQuerySet.as_manager()

    class Meta:
        constraints = [_has_one_subject("daily_usage_of_one")]
        indexes = [
            models.Index(fields=["key", "day"], condition=Q(key__isnull=False), name="daily_usage_of_key"),
            models.Index(
                fields=["application", "day"], condition=Q(application__isnull=False), name="daily_usage_of_application"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.day:%Y-%m-%d}"


_COUNT_SQL = """
SELECT counted.* FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::numeric[])
    WITH ORDINALITY AS t (kind, pk, requests, model_calls, usd, number),
    LATERAL count_usage(t.kind, t.pk, t.requests, t.model_calls, t.usd, %s) AS counted
ORDER BY t.number
"""


def _limits(kind: SubjectKind, own: Sequence[Number | None]) -> dict[str, Number]:
    """Return the limits that apply: the subject's own, or those in the settings. 0 means no limit."""
    held = {name: value for name, value in zip(UNITS, own, strict=True) if value is not None}
    defaults = {name: getattr(settings.DAILY_LIMITS, f"{kind}_{name}") for name in UNITS}
    return {name: value for name, value in (defaults | held).items() if value}
