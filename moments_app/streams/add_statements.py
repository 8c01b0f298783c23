"""`add_statements`: import another system's facts about people into their streams.

A fact keeps its times. Its `written_by` names its origin, by which all imported facts can be retracted. Facts that a
stream already has are not added again, even if they were corrected or ended since.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.utils import timezone

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.models.atom import BY_IMPORT, content_hash
from moments_app.streams.add_atoms import add_atoms
from sessions_app.imports.import_sessions import Statement
from sessions_app.models import UserProfile
from sessions_app.models.session import DEFAULT_AGENT

Key = tuple[str, datetime | None]


def add_statements(people: Mapping[str, UserProfile], statements: Sequence[Statement]) -> int:
    """Add new facts in the caller's transaction, which has locked the people. Return their number."""
    of_streams: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for one in statements:
        of_streams[(one.user_id, one.agent_id or DEFAULT_AGENT)].append(one)
    return sum(_add(people[user_id], agent_id, said) for (user_id, agent_id), said in of_streams.items())


def _add(person: UserProfile, agent_id: str, said: Sequence[Statement]) -> int:
    stream = MemoryStream.objects.ensure_of_person(person, agent_id)
    atoms = _unknown(stream, [_atom(stream, person, one) for one in said])
    if not atoms:
        return 0
    return len(add_atoms(stream, atoms, requested_by=said[0].source))


def _atom(stream: MemoryStream, person: UserProfile, said: Statement) -> MemoryAtom:
    """Return a current or ended fact with the other system's times."""
    atom = MemoryAtom(
        stream=stream,
        user=person,
        atom_type=MemoryAtom.Type.FACT,
        content=said.text,
        content_hash=content_hash(said.text),
        written_by=said.source,
        formed_at=said.said_at or said.valid_from or timezone.now(),
        valid_from=said.valid_from,
    )
    if said.valid_until and said.valid_until <= timezone.now():
        atom.state, atom.ended_by = MemoryAtom.State.ENDED, said.source
        atom.valid_until, atom.ended_at = said.valid_until, said.ended_at or said.valid_until
    return atom


def _unknown(stream: MemoryStream, atoms: Iterable[MemoryAtom]) -> list[MemoryAtom]:
    """Return facts that the stream never had. An imported fact that has ended may be valid again at another time."""
    new = {_key(atom): atom for atom in reversed(list(atoms))}
    same = stream.atoms.filter(user=stream.user_id, position=None, content_hash__in={digest for digest, _ in new})
    known: set[Key] = set()
    for digest, until, ended_by in same.values_list("content_hash", "valid_until", "ended_by"):
        known |= {(digest, until)} if ended_by.startswith(BY_IMPORT) else {key for key in new if key[0] == digest}
    return [atom for key, atom in reversed(new.items()) if key not in known]


def _key(atom: MemoryAtom) -> Key:
    return atom.content_hash, atom.valid_until
