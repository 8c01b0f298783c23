"""`add_atoms`: items into a stream, whoever brings them: a formation, a digest, a client, an operator.

What the stream has already is refused by the database. What is over its buffer is evicted, and a consolidation is asked
for when enough waits.
"""

from collections.abc import Sequence

from moments_app.models import Job, MemoryAtom, MemoryStream
from moments_app.models.embedding import ask_to_embed, whose_memories
from sessions_app.insert import insert_unless_there


def add_atoms(stream: MemoryStream, atoms: Sequence[MemoryAtom], *, requested_by: str) -> list[MemoryAtom]:
    """Add what is new, in the caller's transaction.

    Args:
        stream: of the atoms.
        atoms: not saved yet.
        requested_by: for the jobs that become due.

    Returns:
        Those that were added.
    """
    added = [atom for atom in atoms if insert_unless_there(atom)]
    if added:
        if any(atom.atom_type == MemoryAtom.Type.FACT for atom in added):
            _evict(stream)
        note_growth(stream, requested_by=requested_by)
        consolidate_if_due(stream, requested_by=requested_by)
    return added


def _evict(stream: MemoryStream) -> None:
    """Evict the oldest facts over the buffer."""
    facts = stream.atoms.active().facts().unpinned().newest_first()
    over = list(facts.values_list("pk", flat=True)[stream.fact_buffer_max :])
    MemoryAtom.objects.filter(pk__in=over).evict()


def note_growth(stream: MemoryStream, *, requested_by: str) -> None:
    """Note that a stream has new atoms, and ask for what makes them found well."""
    stream.touch()
    about = whose_memories(stream)
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
