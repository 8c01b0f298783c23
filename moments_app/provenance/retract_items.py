"""Retract directly written items of a person or a shard. Such items have no source turns.

As with turns, dependent rows are withdrawn together with the items: releases of the items, the links of an entity, and
the lines of a stream's text written since the first consolidation that received one of the items. `undo_retraction`
restores all of these rows.
"""

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q

from moments_app.models import MemoryAtom, MemoryStream, Retraction
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.provenance.dependents import ItemDependents, TurnDependents, dependents_of_items
from moments_app.provenance.rebuild import refresh
from moments_app.provenance.repeated import RepeatingAnswer, RetractedText
from moments_app.provenance.retract import (
    MAX_TURNS,
    CannotRetract,
    Preview,
    calls_of,
    consolidations,
    counts_of,
    dependents_of_answers,
    lock_answers,
    lock_person,
    lock_streams,
    log_event,
    repeating_answers,
    retract_answers,
    sequences_by_session,
    withdraw_in_streams,
)
from sessions_app.models import UserProfile

Owner = UserProfile | MemoryStream  # the owner of the memory: a person, or all users of a shard


@dataclass(frozen=True)
class ItemSelection:
    """Selects items by their public ids, or by their writer. Ids of tasks, goals and problems may be in either list."""

    atom_ids: Collection[uuid.UUID] = ()
    entity_ids: Collection[uuid.UUID] = ()
    written_by: str = ""  # `key:…` or `operator:…`

    @property
    def ids(self) -> set[uuid.UUID]:
        return {*self.atom_ids, *self.entity_ids}

    def atoms(self, owner: Owner) -> MemoryAtomQuerySet:
        """Return the selected items. For a shard, return only items that all its users see."""
        whose = Q(user=owner) if isinstance(owner, UserProfile) else Q(user=None, stream=owner)
        own = MemoryAtom.objects.filter(whose).written_directly().order_by("pk")
        return own.filter(written_by=self.written_by) if self.written_by else own.filter(atom_id__in=self.ids)


@dataclass(frozen=True)
class _Found:
    items: list[MemoryAtom]
    dependents: ItemDependents

    @property
    def entity_ids(self) -> list[uuid.UUID]:
        return [item.atom_id for item in self.items if item.is_listed]

    def withdrawn(self, answers: Iterable[TurnDependents] = ()) -> dict[str, int]:
        """Count the rows that would be withdrawn, including those of the answers, keyed by kind."""
        entities = {"entities": len(self.entity_ids)} if self.entity_ids else {}
        return counts_of([self.dependents, *answers]) | entities


def preview_items(owner: Owner, selection: ItemSelection, *, leave: Collection[str] = ()) -> Preview:
    """Return what `retract_items` would do with these arguments, without changing anything. Raises the same errors."""
    found = _found(owner, selection)
    answers = _answers(owner, found)
    of_answers = dependents_of_answers(sequences_by_session(answers, leave))
    parts = [found.dependents, *of_answers]
    return Preview(
        turns=sum(part.turns.count() for part in of_answers),
        withdrawn=found.withdrawn(of_answers),
        engine_calls=consolidations(parts) + calls_of(of_answers),
        answers=answers,
        dependents=parts,
        items=len(found.items),
    )


@transaction.atomic
def retract_items(
    owner: Owner, selection: ItemSelection, *, reason: str, requested_by: str, leave: Collection[str] = ()
) -> Retraction:
    """Withdraw items, answers that repeat them and everything derived from them. Queue the jobs that rebuild the rest.

    Args:
        owner: the person or shard to which the items belong.
        requested_by: `key:…`, `operator:…` or `command`.
        leave: addresses of repeating answers that are not retracted.

    Raises:
        CannotRetract: the items don't exist, or have source turns.
    """
    answers = lock_answers(sequences_by_session(_answers(owner, _found(owner, selection)), leave))
    whose = _locked(owner)
    # A release also locks its candidates first. So this waits for releases in progress, and `_found` includes them.
    list(selection.atoms(owner).candidates().select_for_update(no_key=True, of=("self",)).values_list("pk"))
    lock_streams(selection.atoms(owner), *(session.atoms.all() for session in answers))
    found = _found(owner, selection)
    retraction = Retraction.objects.create(
        **whose,
        item_ids=[item.atom_id for item in found.items if not item.is_listed],
        entity_ids=found.entity_ids,
        reason=reason,
        requested_by=requested_by,
        result={"turns": 0, "items": len(found.items), "withdrawn": found.withdrawn()},
    )
    withdraw_in_streams(retraction, found.dependents)
    refresh(retraction, found.dependents.streams)
    log_event("memory_retracted", retraction, requested_by)
    retract_answers(retraction, answers)
    return retraction


def _answers(owner: Owner, found: _Found) -> list[RepeatingAnswer]:
    """Return the answers that repeat items of a person. For a shard, don't search."""
    if not isinstance(owner, UserProfile):
        return []
    retracted = RetractedText(
        user=owner,
        texts=[item.content for item in found.items],
        turns=(),
        since=min(item.created_at for item in found.items),
        served=found.dependents.addresses() | {owner.uri},
        shown={},
    )
    return repeating_answers(retracted)


def _locked(owner: Owner) -> dict[str, Any]:
    """Lock the owner, invalidate cached contexts, and return the field of the retraction that stores the owner."""
    if isinstance(owner, UserProfile):
        return {"user": lock_person(owner.pk)}
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=owner.pk)
    stream.refresh()
    return {"stream": stream}


def _found(owner: Owner, selection: ItemSelection) -> _Found:
    items = list(selection.atoms(owner)[: MAX_TURNS + 1])
    missing = selection.ids - {item.atom_id for item in items}
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
    return _Found(items, dependents_of_items(items, user=user, also={}))
