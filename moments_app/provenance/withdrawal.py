"""Withdraw and restore rows by the sources that their table declares, without a rule of their own."""

from collections.abc import Collection, Mapping

from django.contrib.postgres.fields import ArrayField
from django.db.models import ForeignKey, Model, Q

from moments_app.models import (
    Correction,
    Entity,
    EpisodeDraft,
    KnownPerson,
    MemoryAtom,
    Moment,
    Retraction,
    StatementChange,
    Summary,
)
from sessions_app.models import Message, UserProfile
from sessions_app.people.provenance import Provenance, declared

# `derived.py`, `retract.py` and `undo.py` have rules for these tables.
WITH_RULES = {Correction, Entity, EpisodeDraft, KnownPerson, MemoryAtom, Message, Moment, StatementChange, Summary}


def tables() -> list[Provenance]:
    """Return the tables whose rows are withdrawn with their sources. Each table comes after its sources."""
    return [table for table in declared() if table.is_withdrawn and table.model not in WITH_RULES]


def resting_on(
    withdrawn: Mapping[type[Model], Collection[int]], user: UserProfile | None
) -> dict[type[Model], list[Model]]:
    """Return the rows of these tables that have a withdrawn source, by table, in the order of `tables`.

    All rows of a job are withdrawn together, because its engine may have used a source anywhere in its answer.

    Args:
        withdrawn: the primary keys of the withdrawn sources, by table.
        user: the person of the withdrawn turns; None if there are no turns.
    """
    sources, found = dict(withdrawn), {}
    for table in tables():
        own = table.model._base_manager.order_by("pk")
        rows = own.filter(_has_source(table, sources, user))
        if "job" in table.made_of:
            rows = own.filter(Q(pk__in=rows.values("pk")) | Q(job__in=rows.exclude(job=None).values("job")))
        found[table.model] = list(rows)
        sources[table.model] = [row.pk for row in found[table.model]]
    return found


def _has_source(table: Provenance, sources: Mapping[type[Model], Collection[int]], user: UserProfile | None) -> Q:
    has = Q(pk__in=())
    for name in table.made_of:
        column = table.model._meta.get_field(name)
        if isinstance(column, ForeignKey):
            has |= Q(**{f"{name}__in": sources.get(column.related_model, ())})
        elif isinstance(column, ArrayField) and user:  # primary keys of turns
            has |= Q(**{f"{name}__overlap": list(sources.get(Message, ())), table.person: user})
    return has


def put_back(retraction: Retraction) -> None:
    """Restore such rows, except those that a newer row has replaced, and those whose source was deleted."""
    for table in tables():
        retraction.items.put_back_missing(table.model)
