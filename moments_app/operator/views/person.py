"""The tabs of a person: who they are, their days, their entities, and their cost."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from django.db.models import Model, Q, QuerySet, Value
from django.http import HttpRequest

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
from moments_app.operator.as_of import AsOf
from moments_app.operator.person_days import DaysPage, Place, days_of
from moments_app.operator.rights import SEE_MEMORY
from moments_app.reports.cost import MAX_JOBS, cost_of_person
from moments_app.streams.profile import profile_of
from sessions_app.admin.access_log import note_reading
from sessions_app.admin.actors import with_key_names
from sessions_app.admin.links import list_url, page_url
from sessions_app.admin.views import DetailsTab, FirstTab, FormPage, RowPage, first_of, may_see, tabs_of
from sessions_app.database.several_servers import read_for_page
from sessions_app.models import Event, Session, UserProfile

KEPT: dict[str, type[Model]] = {
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
COUNTED = 100
READINGS_SHOWN = 10
FACTS_SHOWN = 20
BEHAVIOR = (MemoryAtom.Kind.INSTRUCTION, MemoryAtom.Kind.LESSON)
ENTITIES_SHOWN = 60
PEOPLE_SHOWN = 30


class PersonPage(RowPage[UserProfile]):
    """A page below the head of a person, which has the tabs.

    Attributes:
        tab: the label of the tab.
    """

    has_trail = True
    tab = ""

    @cached_property
    def as_of(self) -> AsOf:
        return AsOf.of(self.request)

    def context(self) -> dict[str, Any]:
        return head_of(self.admin, self.request, self.row, self.name, self.as_of)


class Who(FirstTab[UserProfile], PersonPage):
    """Who the person is."""

    tab = "Overview"
    template_name = "operator/profiles/who.html"

    def note_reading(self) -> None:
        note_reading(self.request, str(self.admin.opts.verbose_name), self.people())

    def context(self) -> dict[str, Any]:
        time = self.as_of.time
        return (
            super().context()
            | self._said(time)
            | self._facts(time)
            | {"days": days_of(self.row, sees=self._sees, until=time)}
            | ({} if time else self._now())
        )

    def _sees(self, model: type[Model]) -> bool:
        return may_see(self.request, model)

    def _said(self, time: datetime | None) -> dict[str, Any]:
        """Return the profile: the current one, or the one that was known at a time."""
        person = self.row
        known = MemoryAtom.objects.of_person(person).about_user()
        return {"was": profile_of(known.as_of(time), person.zone) if time else person}

    def _facts(self, time: datetime | None) -> dict[str, Any]:
        """Return current and former facts, latest first."""
        if not self._sees(MemoryAtom):
            return {"sees_facts": False}
        facts = MemoryAtom.objects.statements_of(self.row).select_related("user").defer("search_vector")
        ended = facts.filter(ended_at__isnull=False).select_related("user", "replaced_by").order_by("-ended_at", "-id")
        if time:
            facts, ended = facts.as_of(time), ended.filter(ended_at__lte=time)
        else:
            facts = facts.holding()
        facts, behaves = facts.newest_first(), Q(kind__in=BEHAVIOR) | Q(is_candidate=True)
        holds, more = _each_once(facts.exclude(behaves))
        behavior, more_behavior = _each_once(facts.filter(behaves))
        held, more_held = _each_once(ended)
        return {
            "sees_facts": True,
            "holds": holds,
            "behavior": behavior,
            "held": held,
            "more": more or more_behavior,
            "more_held": more_held,
        }

    def _now(self) -> dict[str, Any]:
        """Return the people in the person's memory, the stored data, and which operators read it."""
        known = KnownPerson.objects.for_user(self.row).with_statements().newest_first()
        people, more = first_of(self.seen(known), PEOPLE_SHOWN)
        return {
            "known_people": people,
            "more_people": more,
            "put_off": _held_by_budget(self.row),
            "kept": _kept(self.request, self.row),
            "may_erase": self.request.user.has_perm("sessions_app.delete_userprofile"),
        } | self._readings()

    def _readings(self) -> dict[str, Any]:
        """Return the operators who read the person's data last, for operators who may see events."""
        if not may_see(self.request, Event):
            return {"readings": None}
        readings = with_key_names(self.request, Event.objects.readings_of(self.row), "actor")
        newest, more = first_of(readings, READINGS_SHOWN)
        return {"readings": newest, "more_readings": more}


class PersonDays(PersonPage):
    """A page of a person's days, newest first."""

    route, name, tab = "<int:pk>/days/", "days", "Days"
    template_name = "operator/profiles/days.html"

    def context(self) -> dict[str, Any]:
        before = Place.read(self.request.GET.get("before", ""))
        return super().context() | {"days": self._page(before), "is_newest": before is None}

    def _page(self, before: Place | None) -> DaysPage:
        return days_of(self.row, sees=lambda model: may_see(self.request, model), before=before, until=self.as_of.time)


class PersonEntities(PersonPage):
    """A person's tasks, goals and problems, with the links between them."""

    route, name, tab = "<int:pk>/entities/", "entities", "Tasks and goals"
    needs = ("moments_app.view_entity",)
    template_name = "operator/profiles/entities.html"

    def context(self) -> dict[str, Any]:
        rows = Entity.objects.for_user(self.row).select_related("source_session")
        if self.as_of.time:
            rows = rows.filter(created_at__lte=self.as_of.time)
        entities, more = first_of(rows.latest_first(), ENTITIES_SHOWN)
        links = _links(self.row, entities)
        beside = {entity.pk: [link for link in links if link.from_entity_id == entity.pk] for entity in entities}
        return super().context() | {
            "entities": [(entity, beside[entity.pk]) for entity in entities],
            "more": more,
        }


class PersonCost(PersonPage):
    """The usage of calls for a person, by month and purpose."""

    route, name, tab = "<int:pk>/cost/", "cost", "Cost"
    needs = ("moments_app.view_enginecall", "moments_app.view_job")
    template_name = "operator/profiles/cost.html"

    def context(self) -> dict[str, Any]:
        count = partial(cost_of_person, self.row, EngineCall.objects.all())
        return super().context() | {"cost": read_for_page(self.request, count), "most_jobs": MAX_JOBS}


class ProfileDetails(DetailsTab[UserProfile], PersonPage):
    """The fields of a profile that an operator may edit."""


class ProfileForm(FormPage[UserProfile]):
    """The head of a person, above the form of their details."""

    before = "operator/profiles/head.html"

    def context(self) -> dict[str, Any]:
        return head_of(self.admin, self.request, self.row, ProfileDetails.name, AsOf.of(self.request))


def head_of(admin: Any, request: HttpRequest, person: UserProfile, tab: str, as_of: AsOf) -> dict[str, Any]:
    """Return the data for the head of a person, with the tabs that this operator may open."""
    tabs = tabs_of(admin, request, person, tab, as_of.query)
    if may_see(request, Moment):
        tabs.insert(2, {"title": "Moments", "url": page_url(Moment, "chain", person.pk) + as_of.query})
    may_search = request.user.has_perms(SEE_MEMORY)
    may_correct = may_search and request.user.has_perm("moments_app.change_memoryatom")
    return {"profile": person, "tabs": tabs, "as_of": as_of, "may_search": may_search, "may_correct": may_correct}


def _each_once(facts: QuerySet[MemoryAtom]) -> tuple[list[MemoryAtom], bool]:
    """Return the first facts, without duplicates from several streams, and whether there are more."""
    read = list(facts[: 2 * FACTS_SHOWN + 1])
    once: dict[str, MemoryAtom] = {}
    for fact in read:
        once.setdefault(fact.content_hash, fact)
    return list(once.values())[:FACTS_SHOWN], len(once) > FACTS_SHOWN or len(read) > 2 * FACTS_SHOWN


def _links(person: UserProfile, entities: Iterable[Entity]) -> list[EntityLink]:
    there = [entity.pk for entity in entities]
    links = EntityLink.objects.filter(user=person, from_entity__in=there, to_entity__in=there)
    return list(links.select_related("to_entity").order_by("pk"))


def _held_by_budget(profile: UserProfile) -> dict[str, Any] | None:
    """Return the number of jobs that a budget holds until another day, and the reason; None if there are none."""
    jobs = Job.objects.later().filter(user=profile, held_by=Job.Held.BUDGET)
    number = jobs.count()
    url = list_url(Job, user__id__exact=profile.pk, state="waiting")
    return {"number": number, "reason": jobs.values_list("error", flat=True)[0], "url": url} if number else None


def _kept(request: HttpRequest, profile: UserProfile) -> list[dict[str, str]]:
    """Count a person's data that the operator may see, with one query for all tables."""
    tables = [(label, model) for label, model in KEPT.items() if may_see(request, model)]
    if not tables:
        return []
    first, *others = (_first_few(number, model, profile) for number, (_, model) in enumerate(tables))
    numbers = Counter(first.union(*others, all=True) if others else first)
    return [
        {"label": label, "count": _some(numbers[number]), "url": list_url(model, user__id__exact=profile.pk)}
        for number, (label, model) in enumerate(tables)
    ]


def _first_few(number: int, model: type[Model], profile: UserProfile) -> QuerySet[Any, int]:
    """Return a query that yields the table's number once for each of the person's rows, up to a small limit."""
    rows = model._default_manager.filter(user=profile).order_by().annotate(number=Value(number))
    few: QuerySet[Any, int] = rows.values_list("number", flat=True)[: COUNTED + 1]
    return few


def _some(number: int) -> str:
    """Return a number as text. A number above `COUNTED` is shown as a minimum, because counting takes too long."""
    return f"{COUNTED}+" if number > COUNTED else str(number)
