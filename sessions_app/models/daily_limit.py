"""What a key, a person or an application may use a day, where an operator or the settings say so, and what they used.

`count_usage` in the database adds to the usage of a day and returns its totals with the limits. Nobody waits for
anybody in it: a row that somebody else is counting in is passed over, and another is begun beside it. So there may be
several rows of a day, and its usage is their sum.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import connection, models
from django.db.models import Q, Sum
from django.utils import timezone

from sessions_app.models.api_key import ApiKey
from sessions_app.models.application import Application
from sessions_app.models.user_profile import UserProfile
from sessions_app.refusals import Refusal

Number = int | Decimal


class Kind(StrEnum):
    """Those who have limits."""

    KEY = "key"
    PERSON = "person"
    APPLICATION = "application"


COLUMNS = {Kind.KEY: "key", Kind.PERSON: "user", Kind.APPLICATION: "application"}
UNITS = {"requests": "requests", "stored_bytes": "bytes", "model_calls": "model calls", "usd": "USD"}


@dataclass(frozen=True)
class Amounts:
    """What is counted."""

    requests: int = 0
    stored_bytes: int = 0
    model_calls: int = 0
    usd: Decimal = Decimal(0)

    def of(self, name: str) -> Number:
        """Return one of them."""
        amount: Number = getattr(self, name)
        return amount

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            self.requests + other.requests,
            self.stored_bytes + other.stored_bytes,
            self.model_calls + other.model_calls,
            self.usd + other.usd,
        )

    def __neg__(self) -> "Amounts":
        return Amounts(-self.requests, -self.stored_bytes, -self.model_calls, -self.usd)


@dataclass(frozen=True)
class Subject:
    """A key, a person or an application.

    Args:
        kind: which of these.
        pk: primary key; None for a person who is looked up by name.
        user_id: the application's own id of that person.
        application: primary key of that application.
    """

    kind: Kind
    pk: int | None
    user_id: str | None = None
    application: int | None = None

    @property
    def columns(self) -> tuple[str, int | None, str | None, int | None]:
        """Its fields, as `count_usage` takes them."""
        return self.kind.value, self.pk, self.user_id, self.application


@dataclass(frozen=True)
class Standing:
    """How a subject stands on a day.

    Args:
        subject: whose it is.
        day: in UTC.
        used: on that day.
        limits: that hold, by the names of amounts.
    """

    subject: Subject
    day: date
    used: Amounts = field(default_factory=Amounts)
    limits: Mapping[str, Number] = field(default_factory=dict)

    def left(self, name: str) -> Number | None:
        """Return what is left until a limit, less than nothing where it is exceeded; None where none holds."""
        limit = self.limits.get(name)
        return None if limit is None else limit - self.used.of(name)

    def is_used_up(self, name: str) -> bool:
        """Tell whether a limit holds and nothing is left."""
        left = self.left(name)
        return left is not None and left <= 0

    def policy(self, name: str) -> str:
        """Return the name of a limit, as headers have it."""
        return f"{self.subject.kind}-{name.replace('_', '-')}"

    def told(self, name: str) -> str:
        """Return a limit that is reached in a sentence."""
        most = f"{self.limits[name]:,} {UNITS[name]} a day"
        return f"The limit {self.policy(name)} is reached: {most} for this {self.subject.kind}."

    @property
    def models_used_up(self) -> str:
        """The limit on models that is reached, in a sentence; blank when none is."""
        return next((self.told(name) for name in ("model_calls", "usd") if self.is_used_up(name)), "")


class LimitReached(Refusal):
    """What somebody may use today is used up.

    Args:
        standing: of whom it is.
        name: of the limit.
    """

    code, status = "daily_limit", 429

    def __init__(self, standing: Standing, name: str) -> None:
        super().__init__(f"{standing.told(name)} The next day begins at midnight UTC.")
        self.retry_after = seconds_left()


def today() -> date:
    """Return the day that is counted for, in UTC."""
    return timezone.now().astimezone(UTC).date()


def tomorrow() -> datetime:
    """Return the time at which the next day begins."""
    return datetime.combine(today() + timedelta(days=1), time(), UTC)


def seconds_left() -> int:
    """Return the seconds until the next day begins, at least 1."""
    return int((tomorrow() - timezone.now()).total_seconds()) + 1


def size_of(values: Iterable[Any]) -> int:
    """Return the bytes of what is stored, in UTF-8: texts as they are, anything else as JSON."""
    texts = (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for value in values
        if value
    )
    return sum(len(text.encode()) for text in texts)


# --- tables ---


class OfSubject(models.Model):
    """A row of one subject."""

    key = models.ForeignKey(ApiKey, null=True, blank=True, on_delete=models.CASCADE, db_index=False)
    user = models.ForeignKey(
        UserProfile, null=True, blank=True, on_delete=models.CASCADE, db_index=False, verbose_name="person"
    )

    application = models.ForeignKey(Application, null=True, blank=True, on_delete=models.CASCADE, db_index=False)

    class Meta:
        abstract = True

    @property
    def subject(self) -> Subject:
        """Whose it is."""
        kind = next(kind for kind, column in COLUMNS.items() if getattr(self, f"{column}_id") is not None)
        return Subject(kind, getattr(self, f"{COLUMNS[kind]}_id"))


def _of_one(name: str) -> models.CheckConstraint:
    """Return the constraint that a row is of one subject, no more and no less."""
    columns = COLUMNS.values()
    ways = (Q(**{f"{other}__isnull": other != column for other in columns}) for column in columns)
    return models.CheckConstraint(condition=reduce(or_, ways), name=name)


class DailyLimit(OfSubject):
    """What a subject may use a day."""

    requests = models.PositiveBigIntegerField(null=True, blank=True)
    stored_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    model_calls = models.PositiveBigIntegerField(null=True, blank=True)
    usd = models.DecimalField(
        "USD", max_digits=12, decimal_places=6, null=True, blank=True, validators=[MinValueValidator(0)]
    )

    class Meta:
        constraints = [
            _of_one("daily_limit_of_one"),
            models.UniqueConstraint(fields=["key"], name="daily_limit_of_key"),
            models.UniqueConstraint(fields=["user"], name="daily_limit_of_person"),
            models.UniqueConstraint(fields=["application"], name="daily_limit_of_application"),
        ]

    def __str__(self) -> str:
        return str(self.key or self.user or self.application)

    def clean(self) -> None:
        """Refuse limits of nobody, and of several."""
        if sum(getattr(self, f"{column}_id") is not None for column in COLUMNS.values()) != 1:
            raise ValidationError("Name one: a key, a person or an application.")


class DailyUsageQuerySet(models.QuerySet["DailyUsage"]):
    def by_day(self, subject: Subject, days: int) -> dict[date, Amounts]:
        """Return what a subject has used on those of the last days on which it used anything, newest first."""
        since = today() - timedelta(days=days - 1)
        rows = self.filter(**{COLUMNS[subject.kind]: subject.pk}, day__gte=since).order_by("-day").values("day")
        summed: Any = rows.annotate(**{f"sum_{name}": Sum(name) for name in UNITS})
        return {row["day"]: Amounts(*(row[f"sum_{name}"] for name in UNITS)) for row in summed}

    def add(self, used: Mapping[Subject, Amounts], day: date | None = None) -> list[Standing]:
        """Add to what subjects have used on a day; return how they stand then, in the same order.

        Args:
            used: what is added.
            day: in UTC; today if none is named.
        """
        day = day or today()
        rows = [[*one.columns, *(amounts.of(name) for name in UNITS)] for one, amounts in used.items()]
        with connection.cursor() as cursor:
            cursor.execute(_COUNT_SQL, [*map(list, zip(*rows, strict=True)), day])
            counted = cursor.fetchall()
        return [
            Standing(subject, day, Amounts(*row[: len(UNITS)]), _limits(subject.kind, row[len(UNITS) :]))
            for subject, row in zip(used, counted, strict=True)
        ]

    def standings(self, subjects: Sequence[Subject]) -> list[Standing]:
        """Return how subjects stand today."""
        return self.add(dict.fromkeys(subjects, Amounts())) if subjects else []


class DailyUsage(OfSubject):
    """What a subject has used on a day; the module's text tells why there may be several rows."""

    day = models.DateField(help_text="In UTC.")
    requests = models.BigIntegerField(default=0)
    stored_bytes = models.BigIntegerField(default=0)
    model_calls = models.BigIntegerField(default=0)
    usd = models.DecimalField(max_digits=16, decimal_places=6, default=0)

    objects = DailyUsageQuerySet.as_manager()

    class Meta:
        constraints = [_of_one("daily_usage_of_one")]
        indexes = [
            models.Index(fields=["key", "day"], condition=Q(key__isnull=False), name="daily_usage_of_key"),
            models.Index(fields=["user", "day"], condition=Q(user__isnull=False), name="daily_usage_of_person"),
            models.Index(
                fields=["application", "day"], condition=Q(application__isnull=False), name="daily_usage_of_application"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.day:%Y-%m-%d}"


_COUNT_SQL = """
SELECT counted.* FROM unnest(
    %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::numeric[]
) WITH ORDINALITY AS t (kind, pk, user_id, application, requests, stored_bytes, model_calls, usd, number),
LATERAL count_usage(
    t.kind, t.pk, t.user_id, t.application, t.requests, t.stored_bytes, t.model_calls, t.usd, %s
) AS counted ORDER BY t.number
"""


def _limits(kind: Kind, own: Sequence[Number | None]) -> dict[str, Number]:
    """Return the limits that hold: the subject's own, else those of the settings; 0 is none."""
    held = {name: value for name, value in zip(UNITS, own, strict=True) if value is not None}
    defaults = {name: getattr(settings.DAILY_LIMITS, f"{kind}_{name}") for name in UNITS}
    return {name: value for name, value in (defaults | held).items() if value}
