"""Retracting items that somebody wrote directly: such an item rests on no turn, so it is a source itself.

What was made of it goes with it, as with turns: the texts of its stream from the first consolidation on that was given
it, and the releases that rest on it. `undo_retraction` puts all of it back.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet

from moments_app.models import MemoryAtom, Retraction
from moments_app.provenance.derived import InStreams, in_streams
from moments_app.provenance.remake import refresh
from moments_app.provenance.retract import (
    MOST_TURNS,
    CannotRetract,
    consolidations,
    counts_in_streams,
    locked_person,
    log_event,
    withdraw_in_streams,
)
from sessions_app.models import UserProfile


@dataclass(frozen=True)
class Named:
    """The items that are meant: some by their ids, or all that somebody wrote.

    Args:
        atom_ids: public ids.
        written_by: as an item names its writer, key:… or operator:….
    """

    atom_ids: Collection[uuid.UUID] = ()
    written_by: str = ""

    def of(self, user: UserProfile) -> QuerySet[MemoryAtom]:
        """Return such items of a person."""
        own = MemoryAtom.objects.filter(user=user).written_directly().order_by("pk")
        return own.filter(written_by=self.written_by) if self.written_by else own.filter(atom_id__in=self.atom_ids)


@dataclass(frozen=True)
class ItemsPreview:
    """The effects that a retraction of items would have.

    Args:
        items: number of those that would be retracted.
        withdrawn: number of rows that would be withdrawn, by kind.
        engine_calls: about how many it takes to make again what had other sources too.
        derived: the rows themselves.
    """

    items: int
    withdrawn: dict[str, int]
    engine_calls: int
    derived: InStreams


def preview_items(user: UserProfile, named: Named) -> ItemsPreview:
    """Return what `retract_items` would do; nothing is changed.

    Raises:
        CannotRetract: as `retract_items`.
    """
    items = _found(user, named)
    found = in_streams(items)
    return ItemsPreview(len(items), counts_in_streams(found), consolidations(found), found)


@transaction.atomic
def retract_items(user: UserProfile, named: Named, *, reason: str, requested_by: str) -> Retraction:
    """Withdraw items and everything made of them, and ask for the rest to be made again.

    Args:
        user: whose memory they are in.
        named: the items.
        reason: for whoever reads about it later.
        requested_by: key:…, operator:… or command.

    Raises:
        CannotRetract: there are no such items, or they rest on turns.
    """
    user = locked_person(user.pk)
    items = _found(user, named)
    found = in_streams(items)
    retraction = Retraction.objects.create(
        user=user,
        item_ids=[item.atom_id for item in items],
        reason=reason,
        requested_by=requested_by,
        result={"turns": 0, "items": len(items), "withdrawn": counts_in_streams(found)},
    )
    withdraw_in_streams(retraction, found)
    refresh(retraction, found.streams)
    log_event("memory_retracted", retraction, requested_by)
    return retraction


def _found(user: UserProfile, named: Named) -> list[MemoryAtom]:
    items = list(named.of(user)[: MOST_TURNS + 1])
    missing = set(named.atom_ids) - {item.atom_id for item in items}
    if not items or missing:
        which = f"{min(missing)}" if missing else "such an item"
        raise CannotRetract(f"Nobody has written {which} directly; what rests on turns goes with them.")
    if len(items) > MOST_TURNS:
        raise CannotRetract(f"These are more than {MOST_TURNS} items; name some of them.")
    return items
