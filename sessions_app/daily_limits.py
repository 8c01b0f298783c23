"""Count the API calls and model calls of API keys and applications.

A web process counts requests in memory. Once a second, a thread adds the counts to `DailyUsage` and reads what other
processes have counted. A request runs a query only if limits exist and the usage of its key or application was not read
in the last `CACHE_SECONDS`. If a process is killed, its unwritten counts are lost, in the client's favor. Model calls
are counted in the transaction that records them.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from functools import partial

from django.conf import settings
from django.db import transaction

from sessions_app.database.deferred_writes import WriteBuffer
from sessions_app.models import ApiKey, DailyUsage
from sessions_app.models.daily_limit import (
    Amounts,
    LimitReached,
    Subject,
    SubjectKind,
    UsageStatus,
    seconds_left,
    today,
)

CACHE_SECONDS = 2.0  # seconds for which cached usage and limits are valid
MAX_WAIT = 1.0  # maximum seconds that a request waits while counts are being written
DAY_SECONDS = 86_400
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
        usage_writer.add(None)  # after releasing the lock, because the writer acquires its own lock before this one
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
        return known is not None and known.day == today() and time.monotonic() - learned < CACHE_SECONDS

    def cache(self, statuses: Iterable[UsageStatus]) -> None:
        with self._lock:
            self._known.update({status.subject: (time.monotonic(), status) for status in statuses})

    def _now(self, subject: Subject) -> UsageStatus:
        _, known = self._known.get(subject, (0.0, UsageStatus(subject, today())))
        return replace(known, used=known.used + self._pending.get((known.day, subject), Amounts()))

    def write(self) -> None:
        """Write the counts, with one statement per day, and drop expired cache entries."""
        with self._lock:
            pending = dict(self._pending)
            self._known = {
                who: known for who, known in self._known.items() if time.monotonic() - known[0] < CACHE_SECONDS
            }
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
