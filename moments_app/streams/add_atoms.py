"""`add_atoms`: items into a stream, whoever brings them: a formation, a digest, a client, an operator.

What the stream has already is refused by the database. What is over its buffer is evicted, and a consolidation is asked
for when enough waits. What a shard gets from a person is a candidate: theirs alone, and part of no consolidation.
"""

from collections.abc import Sequence
from typing import Any

from moments_app.models import Job, MemoryAtom, MemoryStream
from moments_app.models.embedding import ask_to_embed, whose_memories
from moments_app.streams.revoke import withdraw_short
from sessions_app.insert import insert_unless_there


def add_atoms(stream: MemoryStream, atoms: Sequence[MemoryAtom], *, requested_by: str) -> list[MemoryAtom]:
    """Add what is new, in the caller's transaction.

    Args:
        stream: of the atoms.
        atoms: not saved yet; all of the stream, or all candidates of one person.
        requested_by: for the jobs that become due.

    Returns:
        Those that were added.
    """
    added = [atom for atom in _unsaid(stream, atoms) if insert_unless_there(atom)]
    if added:
        if any(atom.atom_type == MemoryAtom.Type.FACT for atom in added):
            _evict(stream, added[0])
        if not added[0].is_candidate:  # the person's contexts know of a new candidate, and nobody else's has it
            stream.touch()
            consolidate_if_due(stream, requested_by=requested_by)
        have_found(added[0], requested_by=requested_by)
    return added


def belonging_to(stream: MemoryStream, person: int) -> dict[str, Any]:
    """Return the columns of an atom that say whose it is, when it was learned from a person.

    Args:
        stream: the person's own, or a shard: there it is a candidate.
        person: primary key.
    """
    return {"user_id": person, "is_candidate": stream.is_shard, "source_user_id": person if stream.is_shard else None}


def _unsaid(stream: MemoryStream, atoms: Sequence[MemoryAtom]) -> Sequence[MemoryAtom]:
    """Return the atoms without candidates for what a shard says to everybody already."""
    hashes = [atom.content_hash for atom in atoms if atom.is_candidate]
    shared = (
        stream.atoms.active().filter(is_candidate=False, content_hash__in=hashes) if hashes else stream.atoms.none()
    )
    said = set(shared.values_list("content_hash", flat=True))
    return [atom for atom in atoms if atom.content_hash not in said]


def _evict(stream: MemoryStream, added: MemoryAtom) -> None:
    """Evict the oldest facts over the buffer; the candidates of each person have one of their own."""
    own = stream.atoms.active().filter(user=added.user_id, is_candidate=added.is_candidate)
    facts = own.facts().unpinned().newest_first()
    over = list(facts.values_list("pk", flat=True)[stream.fact_buffer_max :])
    MemoryAtom.objects.filter(pk__in=over).evict()
    if over and added.is_candidate:
        withdraw_short()


def note_growth(atom: MemoryAtom, *, requested_by: str) -> None:
    """Note that an item came or changed by hand, and ask for what makes it found well."""
    atom.stream.touch()
    have_found(atom, requested_by=requested_by)


def have_found(atom: MemoryAtom, *, requested_by: str) -> None:
    """Ask for the words to be counted and the vectors made of those whose memory an item is in."""
    about = whose_memories(atom)
    Job.objects.request("count_words", requested_by=requested_by, **about)
    ask_to_embed(requested_by, **about)


def consolidate_if_due(stream: MemoryStream, *, requested_by: str) -> None:
    """Ask for a consolidation when enough observations are new."""
    if is_due(stream):
        Job.objects.request("consolidate", stream=stream, requested_by=requested_by)


def is_due(stream: MemoryStream) -> bool:
    """Tell whether enough observations are new in a stream that consolidates at all."""
    trigger = max(stream.consolidation_trigger, 1)
    return bool(stream.consolidation_prompt) and len(stream.atoms.fresh().values("pk")[:trigger]) == trigger
