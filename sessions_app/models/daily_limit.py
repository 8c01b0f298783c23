"""The daily limits of keys and applications, their daily usage, and the counting of their API calls and model calls.

The SQL function `count_usage` adds amounts to a day's usage, and returns the day's totals and the limits. It never
waits for a lock: if another transaction has locked the day's row, the function inserts another row. So a day may have
several rows, and its usage is their sum.

A web process counts requests in memory. Once a second, a thread adds the counts to `DailyUsage` and reads what other
processes have counted. A request reads usage from the database only if limits exist and the cached usage is older than
`CACHE_SECONDS`. If a process is killed, its unwritten counts are lost, in the client's favor. Model calls
are counted in the transaction that records them.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import connection, models, transaction
from django.db.models import Q, Sum
from django.utils import timezone

from sessions_app.database.deferred import WriteBuffer
from sessions_app.models.api_key import ApiKey
from sessions_app.models.application import Application
from sessions_app.refusals import Refusal

Number = int | Decimal
CACHE_SECONDS = 2.0  # seconds for which cached usage and limits are valid
MAX_WAIT = 1.0  # maximum seconds that a request waits while counts are being written
DAY_SECONDS = 86_400


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
        if self.key_id is None and self.application_id is None:
            raise ValidationError("Choose a key or an application.")
        if self.key_id is not None and self.application_id is not None:
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


# --- counting ---

ONE_REQUEST = Amounts(requests=1)


class _Meter:
    """The counts that this process has not written yet, and the cached usage of keys and applications."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.exchange = threading.Lock()  # held during reads and writes to avoid counting twice
        self._pending: dict[tuple[date, Subject], Amounts] = {}
        self._known: dict[Subject, tuple[float, UsageStatus]] = {}

    def add(self, subjects: Iterable[Subject], more: Amounts) -> None:
        """Add to the counts without checking limits."""
        with self._lock:
            for subject in subjects:
                self._add(subject, more)
        usage_writer.add(None)

    def _add(self, subject: Subject, more: Amounts) -> None:
        key = today(), subject
        self._pending[key] = self._pending.get(key, Amounts()) + more

    def count_request(self, subject: Subject) -> UsageStatus:
        """Count a request unless the limit is reached. Return the usage before this request."""
        self.look_up([subject])
        with self._lock:
            usage_status = self._now(subject)
            if not usage_status.is_used_up("requests"):
                self._add(subject, ONE_REQUEST)
        usage_writer.add(None)  # outside the lock, because the writer takes its own lock first
        return usage_status

    def usage_status(self, subject: Subject) -> UsageStatus:
        """Return the usage, including unwritten counts. Read it from the database if it isn't cached."""
        self.look_up([subject])
        with self._lock:
            return self._now(subject)

    def look_up(self, subjects: Iterable[Subject]) -> None:
        """Cache the usage of these subjects. Uses at most one query."""
        with self._lock:
            unknown = [subject for subject in subjects if not self._is_known(subject)]
        if not unknown:
            return
        is_alone = self.exchange.acquire(timeout=MAX_WAIT)
        try:
            self.cache(DailyUsage.objects.usage_statuses(unknown))
        finally:
            if is_alone:
                self.exchange.release()

    def _is_known(self, subject: Subject) -> bool:
        learned, known = self._known.get(subject, (0.0, None))
        return known is not None and known.day == today() and monotonic() - learned < CACHE_SECONDS

    def cache(self, statuses: Iterable[UsageStatus]) -> None:
        with self._lock:
            self._known.update({status.subject: (monotonic(), status) for status in statuses})

    def _now(self, subject: Subject) -> UsageStatus:
        _, known = self._known.get(subject, (0.0, UsageStatus(subject, today())))
        return replace(known, used=known.used + self._pending.get((known.day, subject), Amounts()))

    def write(self) -> None:
        """Write the counts, with one statement per day, and drop expired cache entries."""
        with self._lock:
            pending = dict(self._pending)
            self._known = {who: known for who, known in self._known.items() if monotonic() - known[0] < CACHE_SECONDS}
        for day in {day for day, _ in pending}:
            counted = {subject: amounts for (on, subject), amounts in pending.items() if on == day}
            usage_statuses = DailyUsage.objects.add(counted, day)
            transaction.on_commit(partial(self._written, counted, usage_statuses))

    def _written(self, counted: dict[Subject, Amounts], usage_statuses: list[UsageStatus]) -> None:
        with self._lock:
            for usage_status in usage_statuses:
                place = usage_status.day, usage_status.subject
                left = self._pending.pop(place) + -counted[usage_status.subject]
                if left != Amounts():
                    self._pending[place] = left
            self.cache(usage_statuses)

    def forget(self) -> None:
        with self._lock:
            self._pending, self._known = {}, {}


meter = _Meter()


class _UsageWriter(WriteBuffer[None]):
    def flush(self) -> None:
        with meter.exchange:
            super().flush()


usage_writer = _UsageWriter("daily-usage", lambda _: meter.write())


class Call:
    """An API call, or the work of a job. `subjects` are the key and the application that its usage is counted for."""

    def __init__(self, subjects: Iterable[Subject] = ()) -> None:
        self.subjects = list(subjects)
        self.usage_statuses: dict[Subject, UsageStatus] = {}  # the usage, including this call; empty if no limits apply
        self._is_of_person = False

    @property
    def key_pk(self) -> int | None:
        return next((subject.pk for subject in self.subjects if subject.kind == SubjectKind.KEY), None)

    def begin(self, key: ApiKey) -> None:
        """Count a request for its key and application. Raise LimitReached if it exceeds a limit."""
        self._is_of_person = key.user_id is not None
        subjects = [Subject(SubjectKind.KEY, key.pk), Subject(SubjectKind.APPLICATION, key.application_id)]
        self.subjects += subjects
        if not (key.has_limits or any(settings.DAILY_LIMITS.model_dump().values())):
            return meter.add(subjects, ONE_REQUEST)
        meter.look_up(subjects)
        for subject in subjects:
            usage_status = self.usage_statuses[subject] = meter.count_request(subject)
            if usage_status.is_used_up("requests"):
                raise LimitReached(usage_status, "requests")
            self.usage_statuses[subject] = replace(usage_status, used=usage_status.used + ONE_REQUEST)

    def charge(self, more: Amounts) -> None:
        """Count model calls, in the transaction that records them."""
        if self.subjects:
            usage_statuses = DailyUsage.objects.add(dict.fromkeys(self.subjects, more))
            if self.usage_statuses:
                transaction.on_commit(partial(meter.cache, usage_statuses))

    def headers(self) -> dict[str, str]:
        """Return the headers about limits on requests, as in draft-ietf-httpapi-ratelimit-headers-10.

        The headers for a person's key don't include the application's limits, to hide the usage of its other keys.
        """
        policies, left = [], []
        for usage_status in self.usage_statuses.values():
            if self._is_of_person and usage_status.subject.kind == SubjectKind.APPLICATION:
                continue
            if limit := usage_status.limits.get("requests"):
                policy = f'"{usage_status.policy("requests")}"'
                policies.append(f"{policy};q={limit};w={DAY_SECONDS}")
                left.append(f"{policy};r={max(0, usage_status.left('requests') or 0)};t={seconds_left()}")
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(left)} if policies else {}

    @property
    def models_used_up(self) -> str:  # an error message, or blank
        now = (meter.usage_status(subject) for subject in self.usage_statuses)
        return next((message for usage_status in now if (message := usage_status.models_used_up)), "")


_current: ContextVar[Call | None] = ContextVar("daily_limits_call", default=None)


def current_call() -> Call:
    return _current.get() or Call()


@contextmanager
def counting(call: Call) -> Iterator[Call]:
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)
