"""Calls of applications, and whom they count for: a key, its application and a person.

A request is counted in the web process. Once a second a thread adds what was counted to `DailyUsage` and learns what
other processes have counted. So no request takes a statement for it, but for the first of somebody within `FRESH`
seconds, and that only where there are limits at all. What a process had not written when it was killed is lost, which
is in the caller's favor; so is what others have counted since it learned of them, three seconds ago at most. What is
stored is counted in the transaction that stores it where a limit on it holds, and calls of models always.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from sessions_app.models import ApiKey, DailyUsage
from sessions_app.models.daily_limit import Amounts, Kind, LimitReached, Standing, Subject, seconds_left, size_of, today
from sessions_app.write_behind import WriteBehind

FRESH = 2.0  # seconds for which a process trusts what it knows of somebody
PATIENCE = 1.0  # seconds that a request waits for what is being written
DAY_SECONDS = 86_400
QUOTA_UNITS = {"requests": "", "stored_bytes": ';qu="content-bytes"'}  # the draft's; requests are its default
ONE_REQUEST = Amounts(requests=1)


class _Meter:
    """What this process has counted and not written yet, and how those stand who may have limits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.exchange = threading.Lock()  # held while the database is told or asked, so that nothing counts twice
        self._pending: dict[tuple[date, Subject], Amounts] = {}
        self._known: dict[Subject, tuple[float, Standing]] = {}

    def add(self, subjects: Iterable[Subject], more: Amounts) -> None:
        """Count, and refuse nothing."""
        with self._lock:
            for subject in subjects:
                self._add(subject, more)
        behind.note(None)

    def _add(self, subject: Subject, more: Amounts) -> None:
        place = today(), subject
        self._pending[place] = self._pending.get(place, Amounts()) + more

    def take(self, subject: Subject) -> Standing:
        """Count a request unless it is one too many; return how its subject stands before it."""
        self.look_up([subject])
        with self._lock:
            standing = self._now(subject)
            if not standing.is_used_up("requests"):
                self._add(subject, ONE_REQUEST)
        behind.note(None)
        return standing

    def standing(self, subject: Subject) -> Standing:
        """Return how somebody stands, with what is not written yet; ask the database where that isn't known."""
        self.look_up([subject])
        with self._lock:
            return self._now(subject)

    def look_up(self, subjects: Iterable[Subject]) -> None:
        """Know how these stand, by one statement about those of whom nothing is known."""
        with self._lock:
            unknown = [subject for subject in subjects if not self._is_known(subject)]
        if not unknown:
            return
        is_alone = self.exchange.acquire(timeout=PATIENCE)
        try:
            self.learn(DailyUsage.objects.standings(unknown))
        finally:
            if is_alone:
                self.exchange.release()

    def _is_known(self, subject: Subject) -> bool:
        learned, known = self._known.get(subject, (0.0, None))
        return known is not None and known.day == today() and time.monotonic() - learned < FRESH

    def learn(self, standings: Iterable[Standing]) -> None:
        """Take in how those stand who may have limits, as it is written."""
        with self._lock:
            self._learn(standings)

    def _learn(self, standings: Iterable[Standing]) -> None:
        self._known.update({standing.subject: (time.monotonic(), standing) for standing in standings})

    def _now(self, subject: Subject) -> Standing:
        """Return how somebody stands who was looked up, with what is not written yet."""
        _, known = self._known.get(subject, (0.0, Standing(subject, today())))
        return replace(known, used=known.used + self._pending.get((known.day, subject), Amounts()))

    def write(self) -> None:
        """Write what was counted, by a statement a day; forget those of whom nothing was heard lately."""
        with self._lock:
            pending = dict(self._pending)
            self._known = {who: known for who, known in self._known.items() if time.monotonic() - known[0] < FRESH}
        for day in {day for day, _ in pending}:
            counted = {subject: amounts for (on, subject), amounts in pending.items() if on == day}
            standings = DailyUsage.objects.add(counted, day)
            transaction.on_commit(partial(self._written, counted, standings))

    def _written(self, counted: dict[Subject, Amounts], standings: list[Standing]) -> None:
        with self._lock:
            for standing in standings:
                place = standing.day, standing.subject
                left = self._pending.pop(place) + -counted[standing.subject]
                if left != Amounts():
                    self._pending[place] = left
            self._learn(standings)

    def forget(self) -> None:
        """Know nothing, as a process that has just begun."""
        with self._lock:
            self._pending, self._known = {}, {}


meter = _Meter()


class _Behind(WriteBehind[None]):
    """Writes what the meter has counted."""

    def flush(self) -> None:
        with meter.exchange:
            super().flush()


behind = _Behind("daily-usage", lambda _: meter.write())


class Call:
    """A call of an application, or a job's work for one.

    Args:
        subjects: for whom it counts, as far as that is known.

    Attributes:
        standings: how those stand who have limits, with this call.
        refuses_bytes: what is too much to be stored is refused; else it is counted and stored all the same.
    """

    def __init__(self, subjects: Iterable[Subject] = ()) -> None:
        self.subjects = list(subjects)
        self.standings: dict[Subject, Standing] = {}
        self.refuses_bytes = True
        self._may_be_limited = self._is_of_person = False
        self._application: int | None = None

    @property
    def key_pk(self) -> int | None:
        """Primary key of the key."""
        return next((subject.pk for subject in self.subjects if subject.kind == Kind.KEY), None)

    def begin(self, key: ApiKey) -> None:
        """Count a request for its key and application.

        Raises:
            LimitReached: it is one too many.
        """
        self._may_be_limited = key.has_limits or any(settings.DAILY_LIMITS.model_dump().values())
        self._application = key.application_id
        self._is_of_person = key.user_id is not None
        self._count(Subject(Kind.KEY, key.pk), Subject(Kind.APPLICATION, key.application_id))

    def is_about(self, user_id: str) -> None:
        """Count the request for the person whom it is about, unless it is counted for them already.

        Raises:
            LimitReached: it is one too many.
        """
        person = Subject(Kind.PERSON, None, user_id, self._application)
        if self.subjects and person not in self.subjects:
            self._count(person)

    def _count(self, *subjects: Subject) -> None:
        self.subjects += subjects
        if not self._may_be_limited:
            return meter.add(subjects, ONE_REQUEST)
        meter.look_up(subjects)
        for subject in subjects:
            standing = self.standings[subject] = meter.take(subject)
            if standing.is_used_up("requests"):
                raise LimitReached(standing, "requests")
            self.standings[subject] = replace(standing, used=standing.used + ONE_REQUEST)

    def store(self, stored_bytes: int) -> None:
        """Count what is stored: in the transaction that stores it where there is a limit on it, else behind it.

        Raises:
            LimitReached: it is too much, and the transaction has to be rolled back.
        """
        more = Amounts(stored_bytes=stored_bytes)
        if not any("stored_bytes" in standing.limits for standing in self.standings.values()):
            return transaction.on_commit(partial(meter.add, self.subjects, more))
        self._note_bytes(DailyUsage.objects.add(dict.fromkeys(self.subjects, more)))
        if self.refuses_bytes:
            self._refuse_bytes(0)

    def charge(self, more: Amounts) -> None:
        """Count calls of models, in the transaction that puts them on record."""
        if self.subjects:
            standings = DailyUsage.objects.add(dict.fromkeys(self.subjects, more))
            if self.standings:
                transaction.on_commit(partial(meter.learn, standings))

    def refuse_bytes(self, more: int) -> None:
        """Refuse what can't be stored any more, before anything is done about it.

        Raises:
            LimitReached: so much more is too much.
        """
        if any("stored_bytes" in standing.limits for standing in self.standings.values()):
            self._note_bytes(DailyUsage.objects.standings(self.subjects))
            self._refuse_bytes(more)

    def _note_bytes(self, standings: Iterable[Standing]) -> None:
        for now in standings:
            before = self.standings[now.subject]
            used = replace(before.used, stored_bytes=now.used.stored_bytes)
            self.standings[now.subject] = replace(before, used=used)

    def _refuse_bytes(self, more: int) -> None:
        for standing in self.standings.values():
            left = standing.left("stored_bytes")
            if left is not None and left < more:
                raise LimitReached(standing, "stored_bytes")

    def headers(self) -> dict[str, str]:
        """Return the fields that tell of limits on requests and bytes; none where there are none.

        They are those of draft-ietf-httpapi-ratelimit-headers-10. A person's key isn't told what others use.
        """
        policies, left = [], []
        for standing in self.standings.values():
            if self._is_of_person and standing.subject.kind == Kind.APPLICATION:
                continue
            for name, unit in QUOTA_UNITS.items():
                if name in standing.limits:
                    policy = f'"{standing.policy(name)}"'
                    policies.append(f"{policy};q={standing.limits[name]};w={DAY_SECONDS}{unit}")
                    left.append(f"{policy};r={max(0, standing.left(name) or 0)};t={seconds_left()}")
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(left)} if policies else {}

    @property
    def models_used_up(self) -> str:
        """The limit on models that is reached, in a sentence; blank when none is."""
        now = (meter.standing(subject) for subject in self.standings)
        return next((told for standing in now if (told := standing.models_used_up)), "")


_current: ContextVar[Call | None] = ContextVar("daily_limits_call", default=None)


def call_under_way() -> Call:
    """Return the call under way; outside of any, one that counts for nobody."""
    return _current.get() or Call()


@contextmanager
def calling(call: Call) -> Iterator[Call]:
    """Let what the block does count for a call's subjects."""
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


def count_stored(sizes: Iterable[int]) -> None:
    """Count what is stored, in bytes, for the call under way; see `Call.store`."""
    if (call := call_under_way()).subjects:
        call.store(sum(sizes))


def count_values(*values: Any) -> None:
    """Count values that are stored for the call under way."""
    count_stored([size_of(values)])
