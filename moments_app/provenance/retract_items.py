"""Retract directly written items. They have no source turns: they are sources themselves.

Dependent rows are withdrawn with them, as with turns: the texts of their stream since the first consolidation that
received one of them, releases of them, and the links of an entity. `undo_retraction` restores all of it. The items
belong to a person, or to a shard whose users all see them.
"""

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q

from moments_app.models import MemoryAtom, MemoryStream, Retraction
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.provenance.derived import Derived, InStreams, in_streams
from moments_app.provenance.remake import refresh
from moments_app.provenance.repeated import Answer, Retracted
from moments_app.provenance.retract import (
    MAX_TURNS,
    CannotRetract,
    Preview,
    answers_to,
    by_session,
    calls_of,
    consolidations,
    counts_of,
    found_in,
    lock_answers,
    lock_streams,
    locked_person,
    log_event,
    retract_answers,
    withdraw_in_streams,
)
from sessions_app.models import UserProfile

Owner = UserProfile | MemoryStream  # the owner of the memory: a person, or all users of a shard


@dataclass(frozen=True)
class Named:
    """The items to retract: by their ids, or by their writer.

    Args:
        atom_ids, entity_ids: public ids; of tasks, goals and problems in either.
        written_by: the writer as recorded in items: `key:…` or `operator:…`.
    """

    atom_ids: Collection[uuid.UUID] = ()
    entity_ids: Collection[uuid.UUID] = ()
    written_by: str = ""

    @property
    def ids(self) -> set[uuid.UUID]:
        return {*self.atom_ids, *self.entity_ids}

    def atoms(self, owner: Owner) -> MemoryAtomQuerySet:
        """Return the named items. For a shard, return only items that all its users see."""
        whose = Q(user=owner) if isinstance(owner, UserProfile) else Q(user=None, stream=owner)
        own = MemoryAtom.objects.filter(whose).written_directly().order_by("pk")
        return own.filter(written_by=self.written_by) if self.written_by else own.filter(atom_id__in=self.ids)


@dataclass(frozen=True)
class _Found:
    """Directly written items with their dependent rows."""

    items: list[MemoryAtom]
    derived: InStreams

    @property
    def entity_ids(self) -> list[uuid.UUID]:
        return [item.atom_id for item in self.items if item.is_listed]

    def withdrawn(self, answers: Iterable[Derived] = ()) -> dict[str, int]:
        """Count the rows that would be withdrawn, including those of the answers, keyed by kind."""
        entities = {"entities": len(self.entity_ids)} if self.entity_ids else {}
        return counts_of([self.derived, *answers]) | entities


def preview_items(owner: Owner, named: Named, *, leave: Collection[str] = ()) -> Preview:
    """Return what `retract_items` would do, without changing anything.

    Args:
        owner, named, leave: as in `retract_items`.

    Raises:
        CannotRetract: see `retract_items`.
    """
    found = _found(owner, named)
    answers = _answers(owner, found)
    of_answers = found_in(by_session(answers, leave))
    parts = [found.derived, *of_answers]
    return Preview(
        withdrawn=found.withdrawn(of_answers),
        engine_calls=consolidations(parts) + calls_of(of_answers),
        answers=answers,
        derived=parts,
        items=len(found.items),
    )


@transaction.atomic
def retract_items(
    owner: Owner, named: Named, *, reason: str, requested_by: str, leave: Collection[str] = ()
) -> Retraction:
    """Withdraw items, answers that repeat them and everything derived from them. Queue the jobs that rebuild the rest.

    Args:
        owner: the person whose memory has them, or the shard.
        reason: why, for the record.
        requested_by: `key:…`, `operator:…` or `command`.
        leave: addresses of repeating answers that are not retracted.

    Raises:
        CannotRetract: the items don't exist, or have source turns.
    """
    answers = lock_answers(by_session(_answers(owner, _found(owner, named)), leave))
    whose = _locked(owner)
    # Releases lock their candidates first, too. So this waits for releases in progress, and `_found` includes them.
    list(named.atoms(owner).candidates().select_for_update(no_key=True, of=("self",)).values_list("pk"))
    lock_streams(named.atoms(owner), *(session.atoms.all() for session in answers))
    found = _found(owner, named)
    retraction = Retraction.objects.create(
        **whose,
        item_ids=[item.atom_id for item in found.items if not item.is_listed],
        entity_ids=found.entity_ids,
        reason=reason,
        requested_by=requested_by,
        result={"turns": 0, "items": len(found.items), "withdrawn": found.withdrawn()},
    )
    withdraw_in_streams(retraction, found.derived)
    refresh(retraction, found.derived.streams)
    log_event("memory_retracted", retraction, requested_by)
    retract_answers(retraction, answers)
    return retraction


def _answers(owner: Owner, found: _Found) -> list[Answer]:
    """Return the answers that repeat items of a person. Don't search for answers that repeat items of a shard."""
    if not isinstance(owner, UserProfile):
        return []
    said = Retracted(
        user=owner,
        texts=[item.content for item in found.items],
        turns=(),
        since=min(item.created_at for item in found.items),
        served=found.derived.addresses() | {owner.uri},
        shown={},
    )
    return answers_to(said)


def _locked(owner: Owner) -> dict[str, Any]:
    """Lock the owner, invalidate cached contexts, and return the field of the retraction that stores the owner."""
    if isinstance(owner, UserProfile):
        return {"user": locked_person(owner.pk)}
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=owner.pk)
    stream.touch()
    return {"stream": stream}


def _found(owner: Owner, named: Named) -> _Found:
    items = list(named.atoms(owner)[: MAX_TURNS + 1])
    missing = named.ids - {item.atom_id for item in items}
    if missing or not items:
        which = f"item {min(missing)}" if missing else "item of this writer"
        raise CannotRetract(
            f"There is no {which} that was written directly. To retract an item learned from turns, retract the turns."
        )
    if len(items) > MAX_TURNS:
        raise CannotRetract(
            f"There are more than {MAX_TURNS} items, which is the limit. Retract fewer items at a time."
        )
    user = owner if isinstance(owner, UserProfile) else None
    return _Found(items, in_streams(items, user=user, beside={}))
