"""A person's days: what happened on each of them, newest first, a page at a time.

One query reads the latest events of each kind before a position, each kind through its own index, so a page costs the
same anywhere in the history. Moments and facts are dated by their source turns, sessions by their last turn, and
summaries and retractions by their creation.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Any, Self

from django.db.models import F, Model, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Coalesce, Left, NullIf
from django.utils.dateparse import parse_datetime

from moments_app.models import MemoryAtom, Moment, Retraction, Summary
from sessions_app.models import Session, UserProfile

PAGE = 60  # maximum events per page
DAYS = 14  # maximum days per page
TEXT = 160  # maximum characters of an event's text
FACTS = ("formed", "ended")  # names of the kinds of events about facts


@dataclass(frozen=True)
class Kind:
    """A kind of event.

    Args:
        time: the column by which rows are sorted.
        text: the column with the text to show.
        session: the lookup to the session.
        rows: returns the rows of a person that are events of this kind.
    """

    name: str
    model: type[Model]
    time: str
    text: str
    rows: Callable[[UserProfile], QuerySet[Any]]
    session: str = "session"


KINDS = (
    Kind(
        "moment",
        Moment,
        "ends_at",
        "name",
        lambda user: Moment.objects.for_user(user),
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
    """The position of an event in the list.

    Later events come first. Simultaneous events are sorted by kind and key.
    """

    at: datetime
    kind: int
    pk: int

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse a position from a URL parameter, or return None if the parameter is invalid."""
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
class DayEvent:
    """An event.

    Args:
        kind: its index in `KINDS`.
        session, session_name: its session; None if it belongs to no session.
    """

    kind: int
    pk: int
    at: datetime
    text: str
    session: int | None
    session_name: str

    @property
    def name(self) -> str:
        return KINDS[self.kind].name

    @property
    def place(self) -> Place:
        return Place(self.at, self.kind, self.pk)


@dataclass(frozen=True)
class DaysPage:
    """A page of a person's days.

    Args:
        events: latest first.
        older: the position of the last event, after which the next page starts; None if there is no next page.
    """

    events: Sequence[DayEvent]
    older: Place | None

    @property
    def by_day(self) -> list[tuple[date, list[DayEvent]]]:
        """The events of each day, latest first. Facts with the same words in several memory texts are shown once."""
        return [(day, _once(events)) for day, events in groupby(self.events, key=lambda event: event.at.date())]


def _once(events: Iterable[DayEvent]) -> list[DayEvent]:
    once: dict[object, DayEvent] = {}
    for event in events:
        is_whole = event.name in FACTS and len(event.text) < TEXT
        once.setdefault((event.kind, event.text) if is_whole else event.place, event)
    return list(once.values())


def days_of(
    user: UserProfile,
    *,
    sees: Callable[[type[Model]], bool],
    before: Place | None = None,
    until: datetime | None = None,
) -> DaysPage:
    """Read a page of a person's days.

    Args:
        sees: returns whether the operator may see the rows of a table.
        before: the page has only events earlier than this position; None: it starts with the latest event.
        until: excludes later events.
    """
    rows = [_rows(number, user, before, until) for number, kind in enumerate(KINDS) if sees(kind.model)]
    if not rows:
        return DaysPage([], None)
    found = rows[0].union(*rows[1:], all=True).order_by("-at", "number", "-row")[: PAGE + 1] if rows[1:] else rows[0]
    events = [DayEvent(*row) for row in found]
    shown = events[: min(PAGE, _end_of_days(events))]
    return DaysPage(shown, shown[-1].place if len(shown) < len(events) else None)


def _end_of_days(events: Iterable[DayEvent]) -> int:
    """Return how many events to show. A page has at most `DAYS` days."""
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
        "said": Left(Cast(kind.text, TextField()), TEXT),
        "lane": F(f"{kind.session}_id" if kind.session else "pk"),
        "named": named,
    }
    latest: QuerySet[Any, Any] = rows.order_by(f"-{kind.time}", "-pk").annotate(**columns).values_list(*columns)
    return latest[: PAGE + 1]


def _earlier(rows: QuerySet[Any], kind: Kind, number: int, before: Place | None) -> QuerySet[Any]:
    """Return the rows earlier than a position. The separate condition on the time lets PostgreSQL use the index."""
    if before is None:
        return rows
    if number < before.kind:
        return rows.filter(**{f"{kind.time}__lt": before.at})
    rows = rows.filter(**{f"{kind.time}__lte": before.at})
    if number > before.kind:
        return rows
    return rows.filter(Q(**{f"{kind.time}__lt": before.at}) | Q(pk__lt=before.pk))
