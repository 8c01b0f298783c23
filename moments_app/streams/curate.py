"""`curate`: evict an item from memory, restore it, or move it to another stream, for operators.

Nothing is deleted, so that former contexts and their sources can be explained. A change applies from the next search
and the next context on.
"""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction

from moments_app.models import Cause, MemoryAtom, MemoryStream, Release, StatementChange
from moments_app.streams.add_atoms import consolidate_if_due, process_manual_change
from moments_app.streams.texts import is_carried, line_key
from moments_app.streams.timeline import begin_again, ended_by, not_ended, settle, touch
from sessions_app.database.sql import lock_rows
from sessions_app.models import UserProfile
from sessions_app.refusals import Refusal


class CannotCurate(Refusal):
    """The item can't be evicted, restored or moved. The message says why."""


_WHY_NOT = {
    MemoryAtom.State.ACTIVE: "The item is already in memory.",
    MemoryAtom.State.ABSORBED: "The item is part of its memory text. Undo that merge, or delete its line.",
    MemoryAtom.State.LINE: "The item is a line of its memory text.",
    MemoryAtom.State.ENDED: "The fact has ended. Ended facts are kept as history.",
    MemoryAtom.State.EVICTED: "The item was removed from memory. Restore it first.",
}


@transaction.atomic
def evict(atom: MemoryAtom, *, requested_by: str) -> None:
    """Remove an item from every context and search, or a line from its stream's text.

    The item must not be contained in a line.

    Args:
        requested_by: `operator:…`.

    Raises:
        CannotCurate: the item is not in memory, or a line contains it.
    """
    found = _locked(atom, [MemoryAtom.State.ACTIVE, MemoryAtom.State.ABSORBED, MemoryAtom.State.LINE])
    if is_carried(found):
        raise CannotCurate(_WHY_NOT[MemoryAtom.State.ABSORBED])
    take_out([found], Cause(requested_by))


def take_out(atoms: Sequence[MemoryAtom], cause: Cause) -> None:
    """Remove items from every context and search, in the caller's transaction.

    Facts ended by them become valid again.
    """
    ended = ended_by(atoms)
    MemoryAtom.objects.filter(pk__in=[atom.pk for atom in atoms]).evict(cause)
    begin_again(ended, cause)
    touch([*atoms, *ended, *settle(atoms, cause)])


@transaction.atomic
def restore(atom: MemoryAtom, *, requested_by: str) -> None:
    """Restore an evicted item.

    Args:
        requested_by: `operator:…`.

    Raises:
        CannotCurate: it isn't evicted, or its stream already has the same item.
    """
    found = _locked(atom, [MemoryAtom.State.EVICTED])
    lines = found.stream.atoms.lines() if found.position is not None else MemoryAtom.objects.none()
    if line_key(found.content) in {line_key(line.content) for line in lines}:
        raise CannotCurate("The memory text already has this line.")
    _set(found, StatementChange.Action.RESTORED, Cause(requested_by), merged_into=None, **not_ended(found))
    _note_arrival(found, requested_by)


@transaction.atomic
def move(atom: MemoryAtom, stream: MemoryStream, *, requested_by: str) -> None:
    """Move an item to another stream of the same person. Move a shard's item to another shard.

    Args:
        requested_by: `operator:…`.

    Raises:
        CannotCurate: the stream belongs to another person, or already contains the item or an equal one, or the item
            is not in memory.
    """
    if stream.pk == atom.stream_id:
        raise CannotCurate("The item is already in this memory text.")
    if stream.user_id != atom.user_id:
        raise CannotCurate("This item belongs to one person. It can only be moved between that person's memory texts.")
    found = _locked(atom, [MemoryAtom.State.ACTIVE], stream.pk)
    moved = {"stream": stream, "consolidated_at": None, "is_candidate": False}
    _set(found, StatementChange.Action.MOVED, Cause(requested_by), **moved)
    touch([found])
    found.stream = stream
    _note_arrival(found, requested_by)


def _locked(atom: MemoryAtom, states: Sequence[MemoryAtom.State], *streams: int) -> MemoryAtom:
    """Lock the person, the streams and then the item, and return the current item with its stream.

    Erasures and consolidations lock in the same order.
    """
    lock_rows(UserProfile.objects.filter(pk__in=[atom.user_id] if atom.user_id else []))
    locked = MemoryStream.objects.select_for_update(no_key=True).filter(pk__in=[atom.stream_id, *streams])
    locked_streams = {stream.pk for stream in locked.order_by("pk")}
    found = MemoryAtom.objects.select_for_update(no_key=True).filter(pk=atom.pk).first()
    if found is None or found.stream_id not in locked_streams:
        raise CannotCurate("The item was moved or erased in the meantime. Reload and try again.")
    if found.state not in states:
        raise CannotCurate(_WHY_NOT[MemoryAtom.State(found.state)])
    if Release.objects.filter(atom=found.pk).exists():
        raise CannotCurate("The item is released to others. Revoke or reword the release instead.")
    return found


def _set(atom: MemoryAtom, action: StatementChange.Action, cause: Cause, **fields: Any) -> None:
    try:
        with transaction.atomic():
            MemoryAtom.objects.filter(pk=atom.pk).change(action, cause, **fields)
    except IntegrityError as error:
        raise CannotCurate("The memory text already has an item with these words.") from error


def _note_arrival(atom: MemoryAtom, requested_by: str) -> None:
    """Queue the jobs that a new item makes due. The next formation evicts items over the buffer limit."""
    process_manual_change(atom, requested_by=requested_by)
    consolidate_if_due(atom.stream, requested_by=requested_by)
