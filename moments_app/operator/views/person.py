"""The tabs of a person: overview, days, tasks and goals, and cost."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Self

from django.db.models import F, Model, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Coalesce, Left, NullIf
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.text import Truncator

from moments_app.models import (
    ContextReceipt,
    EngineCall,
    Entity,
    EntityLink,
    Job,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    Retraction,
    Summary,
)
from moments_app.operator.person_pages import SEE_MEMORY, AsOf
from moments_app.reports.cost import MAX_JOBS, cost_of_person
from moments_app.streams.profile import profile_of
from sessions_app.admin.access_log import note_reading
from sessions_app.admin.base import with_key_names
from sessions_app.admin.links import list_url, page_url
from sessions_app.admin.views import DetailsTab, FirstTab, FormPage, RowPage, first_of, may_see, tabs_of
from sessions_app.database.several_servers import read_for_page
from sessions_app.models import Event, Session, UserProfile

STORED: dict[str, type[Model]] = {  # the tables whose rows are counted under "Stored data"
    "Sessions": Session,
    "Moments": Moment,
    "Summaries": Summary,
    "Memory texts": MemoryStream,
    "Facts and observations": MemoryAtom,
    "Tasks and goals": Entity,
    "Retractions": Retraction,
    "Jobs": Job,
    "Served contexts": ContextReceipt,
}
COUNTED = 100  # maximum rows to count, of each table
READINGS_SHOWN = 10
FACTS_SHOWN = 20
BEHAVIOR = (MemoryAtom.Kind.INSTRUCTION, MemoryAtom.Kind.LESSON)
ENTITIES_SHOWN = 60
PEOPLE_SHOWN = 30
EVENTS_SHOWN, DAYS_SHOWN = 60, 14  # maximum events and days on a page of days
EVENT_CHARS = 160
FACT_EVENTS = ("formed", "ended")  # names of the kinds of events about facts


class PersonPage(RowPage[UserProfile]):
    """A page with the header and the tabs of a person. `tab` is the label of the page's own tab."""

    has_trail = True
    tab = ""

    @cached_property
    def as_of(self) -> AsOf:
        return AsOf.of(self.request)

    def context(self) -> dict[str, Any]:
        return header_context(self.admin, self.request, self.row, self.name, self.as_of)


class PersonOverview(FirstTab[UserProfile], PersonPage):
    """The profile, facts, people, latest days and stored data of a person."""

    tab = "Overview"
    template_name = "operator/profiles/who.html"

    def note_reading(self) -> None:
        note_reading(self.request, str(self.admin.opts.verbose_name), self.people())

    def context(self) -> dict[str, Any]:
        time = self.as_of.time
        known = MemoryAtom.objects.of_person(self.row).about_user()
        return (
            super().context()
            | {"known": profile_of(known.as_of(time), self.row.zone) if time else self.row}
            | self._facts(time)
            | {"days": days_of(self.row, sees=partial(may_see, self.request), until=time)}
            | ({} if time else self._now())
        )

    def _facts(self, time: datetime | None) -> dict[str, Any]:
        """Return current and past facts, latest first."""
        if not may_see(self.request, MemoryAtom):
            return {"sees_facts": False}
        facts = MemoryAtom.objects.statements_of(self.row).select_related("user").defer("search_vector")
        ended = facts.filter(ended_at__isnull=False).select_related("user", "replaced_by").order_by("-ended_at", "-id")
        if time:
            facts, ended = facts.as_of(time), ended.filter(ended_at__lte=time)
        else:
            facts = facts.current()
        facts, is_behavior = facts.newest_first(), Q(kind__in=BEHAVIOR) | Q(is_candidate=True)
        current, more = _without_duplicates(facts.exclude(is_behavior))
        behavior, more_behavior = _without_duplicates(facts.filter(is_behavior))
        past, more_past = _without_duplicates(ended)
        return {
            "sees_facts": True,
            "current": current,
            "behavior": behavior,
            "past": past,
            "more": more or more_behavior,
            "more_past": more_past,
        }

    def _now(self) -> dict[str, Any]:
        known = KnownPerson.objects.for_user(self.row).with_statements().newest_first()
        people, more = first_of(self.visible(known), PEOPLE_SHOWN)
        return {
            "known_people": people,
            "more_people": more,
            "over_budget": _jobs_over_budget(self.row),
            "stored": _stored(self.request, self.row),
            "may_erase": self.request.user.has_perm("sessions_app.delete_userprofile"),
        } | self._readings()

    def _readings(self) -> dict[str, Any]:
        if not may_see(self.request, Event):
            return {"readings": None}
        readings = with_key_names(self.request, Event.objects.readings_of(self.row), "actor")
        newest, more = first_of(readings, READINGS_SHOWN)
        return {"readings": newest, "more_readings": more}


class PersonDays(PersonPage):
    """A person's days, newest first."""

    route, name, tab = "<int:pk>/days/", "days", "Days"
    template_name = "operator/profiles/days.html"

    def context(self) -> dict[str, Any]:
        before = EventCursor.read(self.request.GET.get("before", ""))
        days = days_of(self.row, sees=partial(may_see, self.request), before=before, until=self.as_of.time)
        return super().context() | {"days": days, "is_newest": before is None}


class PersonEntities(PersonPage):
    """A person's tasks, goals and problems, with the links between them."""

    route, name, tab = "<int:pk>/entities/", "entities", "Tasks and goals"
    needs = ("moments_app.view_entity",)
    template_name = "operator/profiles/entities.html"

    def context(self) -> dict[str, Any]:
        found = Entity.objects.for_user(self.row).select_related("source_session")
        if self.as_of.time:
            found = found.filter(created_at__lte=self.as_of.time)
        entities, more = first_of(found.latest_first(), ENTITIES_SHOWN)
        links = _links(self.row, entities)
        rows = [(entity, [link for link in links if link.from_entity_id == entity.pk]) for entity in entities]
        return super().context() | {"entities": rows, "more": more}


class PersonCost(PersonPage):
    """The usage of model calls for a person, by month and purpose."""

    route, name, tab = "<int:pk>/cost/", "cost", "Cost"
    needs = ("moments_app.view_enginecall", "moments_app.view_job")
    template_name = "operator/profiles/cost.html"

    def context(self) -> dict[str, Any]:
        count = partial(cost_of_person, self.row, EngineCall.objects.all())
        return super().context() | {"cost": read_for_page(self.request, count), "most_jobs": MAX_JOBS}


class ProfileDetails(DetailsTab[UserProfile], PersonPage):
    """The fields of a profile that an operator may edit."""


class ProfileForm(FormPage[UserProfile]):
    """The header of a person, above the form of their details."""

    before = "operator/profiles/head.html"

    def context(self) -> dict[str, Any]:
        return header_context(self.admin, self.request, self.row, ProfileDetails.name, AsOf.of(self.request))


def header_context(admin: Any, request: HttpRequest, person: UserProfile, tab: str, as_of: AsOf) -> dict[str, Any]:
    tabs = tabs_of(admin, request, person, tab, as_of.query)
    if may_see(request, Moment):
        tabs.insert(2, {"title": "Moments", "url": page_url(Moment, "chain", person.pk) + as_of.query})
    may_search = request.user.has_perms(SEE_MEMORY)
    may_correct = may_search and request.user.has_perm("moments_app.change_memoryatom")
    return {"profile": person, "tabs": tabs, "as_of": as_of, "may_search": may_search, "may_correct": may_correct}


def _without_duplicates(facts: QuerySet[MemoryAtom]) -> tuple[list[MemoryAtom], bool]:
    """Return the first facts, without duplicates from several streams, and whether there are more."""
    found = list(facts[: 2 * FACTS_SHOWN + 1])
    unique: dict[str, MemoryAtom] = {}
    for fact in found:
        unique.setdefault(fact.content_hash, fact)
    return list(unique.values())[:FACTS_SHOWN], len(unique) > FACTS_SHOWN or len(found) > 2 * FACTS_SHOWN


def _links(person: UserProfile, entities: Iterable[Entity]) -> list[EntityLink]:
    shown = [entity.pk for entity in entities]
    links = EntityLink.objects.filter(user=person, from_entity__in=shown, to_entity__in=shown)
    return list(links.select_related("to_entity").order_by("pk"))


def _jobs_over_budget(profile: UserProfile) -> dict[str, Any] | None:
    """Return the number of jobs that a budget holds until another day, and the reason; None if there are none."""
    jobs = Job.objects.later().filter(user=profile, held_by=Job.Held.BUDGET)
    number = jobs.count()
    url = list_url(Job, user__id__exact=profile.pk, state="waiting")
    return {"number": number, "reason": jobs.values_list("error", flat=True)[0], "url": url} if number else None


def _stored(request: HttpRequest, profile: UserProfile) -> list[dict[str, str]]:
    """Count a person's data that the operator may see, with one query for all tables."""
    tables = [(label, model) for label, model in STORED.items() if may_see(request, model)]
    if not tables:
        return []
    first, *others = (_first_few(number, model, profile) for number, (_, model) in enumerate(tables))
    numbers = Counter(first.union(*others, all=True) if others else first)
    return [
        {
            "label": label,
            "count": f"{COUNTED}+" if numbers[number] > COUNTED else str(numbers[number]),
            "url": list_url(model, user__id__exact=profile.pk),
        }
        for number, (label, model) in enumerate(tables)
    ]


def _first_few(number: int, model: type[Model], profile: UserProfile) -> QuerySet[Any, int]:
    """Return a query that yields `number` once for each of the person's rows in a table, up to `COUNTED` + 1 times."""
    rows = model._default_manager.filter(user=profile).order_by().annotate(number=Value(number))
    few: QuerySet[Any, int] = rows.values_list("number", flat=True)[: COUNTED + 1]
    return few


# --- days ---
#
# One query reads the latest events of each kind before a position, each kind through its own index, so a page costs
# the same anywhere in the history. Moments and facts are dated by their source turns, sessions by their last turn, and
# summaries and retractions by their creation.


@dataclass(frozen=True)
class EventKind:
    """A kind of event.

    Args:
        time: the column by which rows are sorted.
        text: the column with the text to show.
        rows: returns the rows of a person that are events of this kind.
        session: the lookup to the session.
    """

    name: str
    model: type[Model]
    time: str
    text: str
    rows: Callable[[UserProfile], QuerySet[Any]]
    session: str = "session"


def _facts(user: UserProfile) -> QuerySet[MemoryAtom]:
    return MemoryAtom.objects.statements_of(user)


def _ended_facts(user: UserProfile) -> QuerySet[MemoryAtom]:
    return _facts(user).filter(ended_at__isnull=False)


def _summaries(user: UserProfile) -> QuerySet[Summary]:
    return Summary.objects.completed().filter(user=user)


def _sessions(user: UserProfile) -> QuerySet[Session]:
    return Session.objects.for_user(user).filter(message_count__gt=0)


KINDS = (
    EventKind("moment", Moment, "ends_at", "name", Moment.objects.for_user, "source_session"),
    EventKind("formed", MemoryAtom, "formed_at", "content", _facts, "source_session"),
    EventKind("ended", MemoryAtom, "ended_at", "content", _ended_facts, "source_session"),
    EventKind("summary", Summary, "created_at", "text", _summaries),
    EventKind("retraction", Retraction, "created_at", "reason", Retraction.objects.for_user),
    EventKind("session", Session, "last_activity_at", "title", _sessions, session=""),
)


@dataclass(frozen=True)
class EventCursor:
    """The position of an event. Later events come first. Simultaneous events are sorted by kind and key."""

    at: datetime
    kind: int
    pk: int

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse a position from a URL parameter, or return None if the parameter is invalid."""
        at, kind, pk = (*text.split(","), "", "")[:3]
        try:
            time = parse_datetime(at)
        except ValueError:
            return None
        if time is None or time.tzinfo is None or not (kind + pk).isdecimal() or len(kind + pk) > 18:
            return None
        return cls(time, int(kind or 0), int(pk or 0))

    def __str__(self) -> str:
        return f"{self.at.isoformat()},{self.kind},{self.pk}"


@dataclass(frozen=True)
class DayEvent:
    """An event.

    Args:
        kind: the index of the event's kind in `KINDS`.
        text: the event's text, without what follows the first `EVENT_CHARS` + 1 characters.
        session, session_name: primary key and name of the session; None and blank if the event belongs to no session.
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
    def beginning(self) -> str:
        return Truncator(self.text).chars(EVENT_CHARS)

    @property
    def cursor(self) -> EventCursor:
        return EventCursor(self.at, self.kind, self.pk)


@dataclass(frozen=True)
class DaysPage:
    """A page of a person's days, latest events first. `older` is the last shown event's position if others follow."""

    events: Sequence[DayEvent]
    older: EventCursor | None

    @property
    def by_day(self) -> list[tuple[date, list[DayEvent]]]:
        """The events of each day. Facts with the same words in several memory texts are shown once."""
        return [(day, _unique(events)) for day, events in groupby(self.events, key=lambda event: event.at.date())]


def _unique(events: Iterable[DayEvent]) -> list[DayEvent]:
    unique: dict[object, DayEvent] = {}
    for event in events:
        is_whole_fact = event.name in FACT_EVENTS and len(event.text) <= EVENT_CHARS
        unique.setdefault((event.kind, event.text) if is_whole_fact else event.cursor, event)
    return list(unique.values())


def days_of(
    user: UserProfile,
    *,
    sees: Callable[[type[Model]], bool],
    before: EventCursor | None = None,
    until: datetime | None = None,
) -> DaysPage:
    """Read a page of a person's days.

    Args:
        sees: returns whether the operator may see the rows of a table.
        before: the page has only events before this position; None to start with the latest event.
        until: excludes later events.
    """
    rows = [_rows(number, user, before, until) for number, kind in enumerate(KINDS) if sees(kind.model)]
    if not rows:
        return DaysPage([], None)
    latest = rows[0].union(*rows[1:], all=True).order_by("-at", "number", "-row") if rows[1:] else rows[0]
    events = [DayEvent(*row) for row in latest[: EVENTS_SHOWN + 1]]
    days = [len(list(of_day)) for _, of_day in groupby(events, key=lambda event: event.at.date())]
    shown = events[: min(EVENTS_SHOWN, sum(days[:DAYS_SHOWN]))]
    return DaysPage(shown, shown[-1].cursor if len(shown) < len(events) else None)


def _rows(number: int, user: UserProfile, before: EventCursor | None, until: datetime | None) -> QuerySet[Any, Any]:
    kind = KINDS[number]
    rows = _earlier(kind.rows(user), kind, number, before)
    if until:
        rows = rows.filter(**{f"{kind.time}__lte": until})
    through = f"{kind.session}__" if kind.session else ""
    columns = {
        "number": Value(number),
        "row": F("pk"),
        "at": F(kind.time),
        "event_text": Left(Cast(kind.text, TextField()), EVENT_CHARS + 1),
        "event_session": F(f"{kind.session}_id" if kind.session else "pk"),
        "session_name": Coalesce(
            NullIf(f"{through}title", Value("")), f"{through}session_id", Value(""), output_field=TextField()
        ),
    }
    latest: QuerySet[Any, Any] = rows.order_by(f"-{kind.time}", "-pk").annotate(**columns).values_list(*columns)
    return latest[: EVENTS_SHOWN + 1]


def _earlier(rows: QuerySet[Any], kind: EventKind, number: int, before: EventCursor | None) -> QuerySet[Any]:
    """Return the rows before a position. The separate condition on the time lets PostgreSQL use the index."""
    if before is None:
        return rows
    if number < before.kind:
        return rows.filter(**{f"{kind.time}__lt": before.at})
    rows = rows.filter(**{f"{kind.time}__lte": before.at})
    if number > before.kind:
        return rows
    return rows.filter(Q(**{f"{kind.time}__lt": before.at}) | Q(pk__lt=before.pk))
