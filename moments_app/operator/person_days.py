"""What became of a person's days, drawn as lanes: a row a session, a column a day on which something happened.

Of each kind the latest events before a place are read by an index, all kinds by one statement, so that a page costs its
own length wherever in a person's time it is. Moments and facts stand where they were said, sessions where something was
said last; summaries and retractions stand where they were made.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from itertools import groupby
from typing import Any, Self

from django.db.models import F, Model, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Coalesce, Left, NullIf
from django.utils.dateparse import parse_datetime

from moments_app.models import MemoryAtom, Moment, Retraction, Summary
from sessions_app.models import Session, UserProfile

PAGE = 60  # events of a page, at most
DAYS = 14  # days of a page, at most
TEXT = 160  # characters of an event's text
LABELS = 7  # days that are named above the lanes
HUES = 8
LATE = 84  # per cent of the width
THINNEST = 0.8  # per cent of the width
ALL_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Kind:
    """A kind of event.

    Args:
        name: its name in the page.
        model: the table whose rows they are.
        time: the column by which they are read.
        since: the column with their beginning, if that is another.
        text: the column with their text.
        session: the lookup to the session.
        rows: a person's rows that are such events.
    """

    name: str
    model: type[Model]
    time: str
    text: str
    rows: Callable[[UserProfile], QuerySet[Any]]
    since: str = ""
    session: str = "session"


KINDS = (
    Kind(
        "moment",
        Moment,
        "ends_at",
        "name",
        lambda user: Moment.objects.for_user(user),
        since="starts_at",
        session="source_session",
    ),
    Kind(
        "formed",
        MemoryAtom,
        "formed_at",
        "content",
        lambda user: MemoryAtom.objects.statements_of(user),
        session="source_session",
    ),
    Kind(
        "ended",
        MemoryAtom,
        "ended_at",
        "content",
        lambda user: MemoryAtom.objects.statements_of(user).filter(ended_at__isnull=False),
        session="source_session",
    ),
    Kind("summary", Summary, "created_at", "text", lambda user: Summary.objects.completed().filter(user=user)),
    Kind("retraction", Retraction, "created_at", "reason", lambda user: Retraction.objects.for_user(user)),
    Kind(
        "session",
        Session,
        "last_activity_at",
        "title",
        lambda user: Session.objects.for_user(user).filter(message_count__gt=0),
        session="",
    ),
)


@dataclass(frozen=True)
class Place:
    """The place of an event among all of a person: later ones come first, of those of one instant by kind and key."""

    at: datetime
    kind: int
    pk: int

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read what an address carries; None where it names no place."""
        at, kind, pk = (*text.split(","), "", "")[:3]
        try:
            time_of = parse_datetime(at)
        except ValueError:
            return None
        if time_of is None or time_of.tzinfo is None or not (kind + pk).isdecimal() or len(kind + pk) > 18:
            return None
        return cls(time_of, int(kind or 0), int(pk or 0))

    def __str__(self) -> str:
        return f"{self.at.isoformat()},{self.kind},{self.pk}"


@dataclass(frozen=True)
class Happening:
    """An event.

    Args:
        kind: its place in `KINDS`.
        pk: primary key of its row.
        at: when it was.
        begun: when it began.
        text: what it says.
        session, session_name: where; None where it belongs to no session.
    """

    kind: int
    pk: int
    at: datetime
    begun: datetime
    text: str
    session: int | None
    session_name: str

    @property
    def name(self) -> str:
        """Its kind, as the page calls it."""
        return KINDS[self.kind].name

    @property
    def place(self) -> Place:
        """Its place among all."""
        return Place(self.at, self.kind, self.pk)


@dataclass(frozen=True)
class Mark:
    """An event as it is drawn, in per cent of the width."""

    event: Happening
    start: float
    end: float


@dataclass(frozen=True)
class Lane:
    """A session, or what belongs to none, with its marks."""

    session: int | None
    name: str
    marks: Sequence[Mark]

    @property
    def hue(self) -> int:
        """The number of its color."""
        return (self.session or 0) % HUES


@dataclass(frozen=True)
class Column:
    """A day of the page: where it is, in per cent of the width, and whether there is room for its name."""

    day: date
    start: float
    is_named: bool
    is_after_gap: bool

    @property
    def is_late(self) -> bool:
        """True if its name would reach over the edge where it begins with the day."""
        return self.start > LATE


@dataclass(frozen=True)
class DaysPage:
    """A page of a person's days.

    Args:
        events: latest first.
        older: the place before which the next page begins; None where there is none.
    """

    events: Sequence[Happening]
    older: Place | None

    @cached_property
    def days(self) -> list[date]:
        """The days on which something was, the first of them first."""
        return sorted({event.at.date() for event in self.events})

    @property
    def columns(self) -> list[Column]:
        """The days as columns."""
        step = -(-len(self.days) // LABELS)
        return [
            Column(day, round(100 * place / len(self.days), 2), not place % step, _is_after_gap(self.days, place))
            for place, day in enumerate(self.days)
        ]

    @property
    def lanes(self) -> list[Lane]:
        """A lane a session, the one with the latest event first; what belongs to none comes last."""
        by_session: dict[int | None, list[Happening]] = {}
        for event in self.events:
            by_session.setdefault(event.session, []).append(event)
        ordered = sorted(by_session.items(), key=lambda lane: lane[0] is None)
        return [Lane(session, events[0].session_name, [*map(self._mark, events)]) for session, events in ordered]

    @property
    def by_day(self) -> list[tuple[date, list[Happening]]]:
        """The events of each day, the latest first."""
        return [(day, list(events)) for day, events in groupby(self.events, key=lambda event: event.at.date())]

    def _mark(self, event: Happening) -> Mark:
        start, end = self._at(event.begun), self._at(event.at)
        return Mark(event, start, max(end, round(start + THINNEST, 2)))

    def _at(self, when: datetime) -> float:
        """Return where a time is; one of a day that is not on the page is where the next begins."""
        column = bisect_left(self.days, when.date())
        is_there = column < len(self.days) and self.days[column] == when.date()
        within = (when - datetime.combine(when.date(), time(), tzinfo=when.tzinfo)) / ALL_DAY if is_there else 0
        return round(100 * (column + within) / len(self.days), 2)


def _is_after_gap(days: Sequence[date], place: int) -> bool:
    return place > 0 and days[place] - days[place - 1] > ALL_DAY


def days_of(
    user: UserProfile,
    *,
    sees: Callable[[type[Model]], bool],
    before: Place | None = None,
    until: datetime | None = None,
) -> DaysPage:
    """Read a page of a person's days.

    Args:
        user: whose.
        sees: tells whether the operator may see the rows of a table.
        before: the place before which it ends; None: it ends with the latest.
        until: leaves out what was later.
    """
    rows = [_rows(number, user, before, until) for number, kind in enumerate(KINDS) if sees(kind.model)]
    if not rows:
        return DaysPage([], None)
    found = rows[0].union(*rows[1:], all=True).order_by("-at", "number", "-row")[: PAGE + 1] if rows[1:] else rows[0]
    events = [Happening(*row) for row in found]
    shown = events[: min(PAGE, _end_of_days(events))]
    return DaysPage(shown, shown[-1].place if len(shown) < len(events) else None)


def _end_of_days(events: Iterable[Happening]) -> int:
    """Return how many events the days have that a page takes."""
    days = [list(of_day) for _, of_day in groupby(events, key=lambda event: event.at.date())]
    return sum(map(len, days[:DAYS]))


def _rows(number: int, user: UserProfile, before: Place | None, until: datetime | None) -> QuerySet[Any, Any]:
    kind = KINDS[number]
    rows = _earlier(kind.rows(user), kind, number, before)
    if until:
        rows = rows.filter(**{f"{kind.time}__lte": until})
    through = f"{kind.session}__" if kind.session else ""
    named = Coalesce(NullIf(f"{through}title", Value("")), f"{through}session_id", Value(""), output_field=TextField())
    columns = {
        "number": Value(number),
        "row": F("pk"),
        "at": F(kind.time),
        "begun": F(kind.since or kind.time),
        "said": Left(Cast(kind.text, TextField()), TEXT),
        "lane": F(f"{kind.session}_id" if kind.session else "pk"),
        "named": named,
    }
    latest: QuerySet[Any, Any] = rows.order_by(f"-{kind.time}", "-pk").annotate(**columns).values_list(*columns)
    return latest[: PAGE + 1]


def _earlier(rows: QuerySet[Any], kind: Kind, number: int, before: Place | None) -> QuerySet[Any]:
    """Return the rows that come after a place; the bound by time alone is what the index is read by."""
    if before is None:
        return rows
    if number < before.kind:
        return rows.filter(**{f"{kind.time}__lt": before.at})
    rows = rows.filter(**{f"{kind.time}__lte": before.at})
    if number > before.kind:
        return rows
    return rows.filter(Q(**{f"{kind.time}__lt": before.at}) | Q(pk__lt=before.pk))
