"""Add items to streams. They come from a formation, a digest, an import, a client or an operator.

The database rejects items that the stream already has. An item that has ended or was corrected is not added again from
the same turns. A fact ends earlier facts that it contradicts (`timeline.py`). A consolidation is queued when enough
items wait. Items that a shard learns from a person are candidates: only that person sees them, and no consolidation
receives them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.dispatch import receiver
from django.utils import timezone

from moments_app.jobs.process import queue_embedding
from moments_app.models import Cause, CorrectedTurn, Job, MemoryAtom, MemoryStream
from moments_app.models.atom import BY_IMPORT, content_hash
from moments_app.models.embedding import owner_arguments
from moments_app.streams.known_people import link_people
from moments_app.streams.timeline import recompute_timelines, refresh_derived
from sessions_app.database.sql import insert_missing, lock_rows
from sessions_app.imports.import_sessions import Statement
from sessions_app.models import UserProfile
from sessions_app.models.session import DEFAULT_AGENT
from sessions_app.signals import statements_imported

Key = tuple[str, datetime | None]


def add_atoms(stream: MemoryStream, atoms: Sequence[MemoryAtom], *, requested_by: str) -> list[MemoryAtom]:
    """Add unsaved atoms to a stream, in the caller's transaction. Return those that are new.

    Either all atoms are for the stream itself, or all are candidates from one person.
    """
    return add_to_streams([(stream, atoms)], requested_by=requested_by)


def add_to_streams(
    items: Sequence[tuple[MemoryStream, Sequence[MemoryAtom]]],
    *,
    requested_by: str,
    end: Callable[[], Sequence[MemoryAtom]] = tuple,
) -> list[MemoryAtom]:
    """Add new items to several streams, with a constant number of queries. Return the items that are new.

    Args:
        requested_by: recorded in the queued jobs.
        end: a function to call after the atoms are stored. It ends facts that they replace, and returns these facts.
    """
    new = _without_known([atom for _, atoms in items for atom in atoms])
    people = {atom.user_id for atom in new if atom.user_id and not atom.is_candidate}
    lock_rows(UserProfile.objects.filter(pk__in=people))  # before the streams, in the same order as corrections
    # Lock streams before atoms, in the same order as consolidations, to prevent deadlocks. Candidates don't change a
    # shard.
    lock_rows(MemoryStream.objects.filter(pk__in={atom.stream_id for atom in new if not atom.is_candidate}))
    for atom in new:
        atom.describe()
    link_people(new)
    added: list[MemoryAtom] = []
    settled: list[MemoryAtom] = []
    for atoms in _without_repetitions(new):
        inserted = insert_missing(atoms, unique_fields=["atom_id"])
        settled += recompute_timelines(inserted, Cause(requested_by))
        added += inserted
    if added:
        # New candidates only appear in contexts of their own person.
        known = [atom for atom in added if not atom.is_candidate]
        grown = {atom.stream_id for atom in known}
        refresh_derived([*known, *settled, *end()])
        for stream in [stream for stream, _ in items if stream.pk in grown]:
            consolidate_if_due(stream, requested_by=requested_by)
        for atom in {atom.user_id or -atom.stream_id: atom for atom in added}.values():
            queue_indexing(atom, requested_by=requested_by)
    return added


def _without_repetitions(atoms: Sequence[MemoryAtom]) -> list[list[MemoryAtom]]:
    """Return groups of atoms to insert one after the other.

    If the same value of an attribute occurs again, it is in a later group, because the value may have ended in between:
    "I live in Oslo", "I moved to Bergen", "I live in Oslo".
    """
    groups: list[list[MemoryAtom]] = []
    count = Counter[tuple[int, int | None, str]]()
    for atom in atoms:
        key = atom.stream_id, atom.user_id, atom.content_hash
        number = count[key] if atom.attribute else 0
        if number == len(groups):
            groups.append([])
        groups[number].append(atom)
        count[key] += bool(atom.attribute)
    return groups


def owner_columns(stream: MemoryStream, person: UserProfile) -> dict[str, Any]:
    """Return the owner columns of an atom that was learned from a person. In a shard, the atom is a candidate."""
    return {"user": person, "is_candidate": stream.is_shard, "source_user": person if stream.is_shard else None}


def _without_known(atoms: Sequence[MemoryAtom]) -> Sequence[MemoryAtom]:
    """Leave out atoms that have ended or were corrected, and candidates that their shard already shares."""
    shared = _already_shared([atom for atom in atoms if atom.is_candidate])
    corrected = _corrected_turns(atoms)
    unshared = [atom for atom in atoms if (atom.stream_id, atom.content_hash) not in shared]
    ended = _ended_since(unshared)
    return [atom for atom in unshared if atom not in ended and not _is_corrected(atom, corrected)]


def _already_shared(candidates: Sequence[MemoryAtom]) -> set[tuple[int, str]]:
    if not candidates:
        return set()
    shared = MemoryAtom.objects.active().filter(
        is_candidate=False,
        stream__in={atom.stream_id for atom in candidates},
        content_hash__in={atom.content_hash for atom in candidates},
    )
    return set(shared.values_list("stream_id", "content_hash"))


def _ended_since(atoms: Sequence[MemoryAtom]) -> list[MemoryAtom]:
    """Return the atoms that were added before from the same turns and have ended since."""
    sourced = [atom for atom in atoms if atom.source_message_ids and atom.user_id is not None]
    if not sourced:
        return []
    sources = {pk for atom in sourced for pk in atom.source_message_ids}
    ended = MemoryAtom.objects.filter(
        state=MemoryAtom.State.ENDED,
        user__in={atom.user_id for atom in sourced},
        content_hash__in=[atom.content_hash for atom in sourced],
        source_message_ids__overlap=list(sources),
    )
    known = list(ended.values_list("user_id", "content_hash", "source_message_ids"))
    return [
        atom
        for atom in sourced
        if any(
            (user, text) == (atom.user_id, atom.content_hash) and {*turns} & {*atom.source_message_ids}
            for user, text, turns in known
        )
    ]


def _corrected_turns(atoms: Sequence[MemoryAtom]) -> list[CorrectedTurn]:
    users = {atom.user_id for atom in atoms if atom.user_id}
    sessions = {atom.source_session_id for atom in atoms if atom.source_session_id}
    corrected = CorrectedTurn.objects.filter(user__in=users, session__in=sessions)
    return list(corrected.select_related("correction").order_by("pk"))


def _is_corrected(atom: MemoryAtom, turns: Sequence[CorrectedTurn]) -> bool:
    """Return whether an atom contains text of its source turns that was later corrected or withdrawn."""
    read = atom.content
    for turn in turns:
        if turn.applies_to(atom):
            read = turn.corrected(read)
    return read != atom.content


def process_manual_change(atom: MemoryAtom, *, requested_by: str) -> None:
    refresh_derived([atom, *recompute_timelines([atom], Cause(requested_by))])
    queue_indexing(atom, requested_by=requested_by)


def queue_indexing(atom: MemoryAtom, *, requested_by: str) -> None:
    """Queue the word count and the embedding of all memories of an item's person or shard."""
    about = owner_arguments(atom)
    Job.objects.request("count_words", requested_by=requested_by, **about)
    queue_embedding(requested_by, **about)


def consolidate_if_due(stream: MemoryStream, *, requested_by: str) -> None:
    if is_due(stream):
        Job.objects.request("consolidate", stream=stream, requested_by=requested_by)


def is_due(stream: MemoryStream) -> bool:
    trigger = max(stream.consolidation_trigger, 1)
    return bool(stream.consolidation_prompt) and len(stream.atoms.fresh().values("pk")[:trigger]) == trigger


@receiver(statements_imported)
def add_statements(people: Mapping[str, UserProfile], statements: Sequence[Statement], **_: Any) -> int:
    """Import another system's facts into memory, and return the number of new facts.

    Runs in the caller's transaction, which has locked the people. A fact keeps its times. `written_by` records the
    source, so that all facts of an import can be retracted together. Facts that a stream already has are not added
    again, even if they were corrected or have ended since.
    """
    of_streams: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for one in statements:
        of_streams[(one.user_id, one.agent_id or DEFAULT_AGENT)].append(one)
    return sum(_add(people[user_id], agent_id, group) for (user_id, agent_id), group in of_streams.items())


def _add(person: UserProfile, agent_id: str, statements: Sequence[Statement]) -> int:
    stream = MemoryStream.objects.ensure_of_person(person, agent_id)
    atoms = _unknown(stream, [_atom(stream, person, statement) for statement in statements])
    if not atoms:
        return 0
    return len(add_atoms(stream, atoms, requested_by=statements[0].source))


def _atom(stream: MemoryStream, person: UserProfile, statement: Statement) -> MemoryAtom:
    atom = MemoryAtom(
        stream=stream,
        user=person,
        atom_type=MemoryAtom.Type.FACT,
        content=statement.text,
        content_hash=content_hash(statement.text),
        written_by=statement.source,
        formed_at=statement.said_at or statement.valid_from or timezone.now(),
        valid_from=statement.valid_from,
    )
    if statement.valid_until and statement.valid_until <= timezone.now():
        atom.state, atom.ended_by = MemoryAtom.State.ENDED, statement.source
        atom.valid_until, atom.ended_at = statement.valid_until, statement.ended_at or statement.valid_until
    return atom


def _unknown(stream: MemoryStream, atoms: Iterable[MemoryAtom]) -> list[MemoryAtom]:
    """Return the facts that were never in the stream.

    If an import stored a fact as ended, the same fact with another end time is new, because it may be valid again.
    """
    new = {_key(atom): atom for atom in reversed(list(atoms))}
    same = stream.atoms.filter(user=stream.user_id, position=None, content_hash__in={digest for digest, _ in new})
    known: set[Key] = set()
    for digest, until, ended_by in same.values_list("content_hash", "valid_until", "ended_by"):
        known |= {(digest, until)} if ended_by.startswith(BY_IMPORT) else {key for key in new if key[0] == digest}
    return [atom for key, atom in reversed(new.items()) if key not in known]


def _key(atom: MemoryAtom) -> Key:
    return atom.content_hash, atom.valid_until
