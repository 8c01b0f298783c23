"""`add_atoms`: items into a stream, whoever brings them: a formation, a digest, a client, an operator.

What the stream has already is refused by the database. What is over its buffer is evicted, and a consolidation is asked
for when enough waits.
"""

from collections.abc import Sequence

from moments_app.jobs.process import has_grown
from moments_app.models import MemoryAtom, MemoryStream
from moments_app.streams import consolidate
from sessions_app.insert import insert_unless_there


def add_atoms(stream: MemoryStream, atoms: Sequence[MemoryAtom], *, requested_by: str) -> list[MemoryAtom]:
    """Adds what is new, in the caller's transaction.

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
        has_grown(stream, requested_by=requested_by)
        consolidate.ask_if_due(stream, requested_by=requested_by)
    return added


def _evict(stream: MemoryStream) -> None:
    """The oldest facts over the buffer."""
    facts = stream.atoms.active().facts().unpinned().newest_first()
    over = list(facts.values_list("pk", flat=True)[stream.fact_buffer_max :])
    MemoryAtom.objects.filter(pk__in=over).evict()
