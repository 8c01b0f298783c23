"""Select the existing items for a formation, which then receives those similar to its turns (`nearest`).

The selection contains the current statements from the person's own streams, with lasting and new ones first. It also
contains the newest statements from the person's other sessions with the same agent. These statements are numbered. In
addition, it contains the text and the latest other items of every stream.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.models.atom import WRITTEN_ATTRIBUTES, MemoryAtomQuerySet
from sessions_app.models import UserProfile

CURRENT_ITEMS = 20  # maximum latest items per stream
CURRENT_STATEMENTS = 200  # maximum statements from the person's streams, and also from other sessions
CURRENT_CHARS = 6_000
COLUMNS = ("stream_id", "content", "worth", "formed_at")


@dataclass(frozen=True)
class KnownItems:
    # current statements, keyed by number in the prompt; the engine refers to these numbers to end statements
    statements: Mapping[int, MemoryAtom] = field(default_factory=dict)
    of_other_sessions: Collection[int] = ()  # the numbers of statements from the person's other sessions
    current: Mapping[str, str] = field(default_factory=dict)  # the text and the items of each stream, keyed by label


def known_items_of(user: UserProfile, of_sessions: Iterable[Mapping[str, MemoryStream]]) -> list[KnownItems]:
    """Return the existing items for each session of a run. A statement has the same number for all sessions.

    `of_sessions` contains the streams of each session of the person, keyed by label.
    """
    sessions = list(of_sessions)
    streams = {stream.pk: stream for labels in sessions for stream in labels.values()}
    atoms = _read(user, streams.values())
    others = _of_other_sessions(user, streams.values())
    own = [_own_statements(labels, atoms) for labels in sessions]
    of_agents = [_of_agents(labels, others) for labels in sessions]
    pks = dict.fromkeys(atom.pk for found in [*own, *of_agents] for atom in found)
    numbers = {pk: number for number, pk in enumerate(pks, start=1)}
    return [
        KnownItems(
            {numbers[atom.pk]: atom for atom in [*statements, *elsewhere]},
            frozenset(numbers[atom.pk] for atom in elsewhere),
            _current_texts(labels, atoms, {atom.pk for atom in statements}),
        )
        for labels, statements, elsewhere in zip(sessions, own, of_agents, strict=True)
    ]


def current_text(stream: MemoryStream, contents: Iterable[str]) -> str:
    """Return a stream's text and its latest items, formatted for a request."""
    return "\n".join([stream.consolidated_content, *contents]).strip()[:CURRENT_CHARS]


def _own_statements(
    streams: Mapping[str, MemoryStream], atoms: Mapping[int, Sequence[MemoryAtom]]
) -> Sequence[MemoryAtom]:
    own = [atom for stream in streams.values() if not stream.is_shard for atom in atoms.get(stream.pk, ())]
    own.sort(key=attrgetter("worth", "formed_at", "pk"), reverse=True)
    return own[:CURRENT_STATEMENTS]


def _of_agents(streams: Mapping[str, MemoryStream], others: Sequence[MemoryAtom]) -> Sequence[MemoryAtom]:
    """Return the statements from other sessions with the agent of this session."""
    agents = {stream.agent_id for stream in streams.values() if stream.stream_type == MemoryStream.Type.SESSION}
    return [atom for atom in others if atom.stream.agent_id in agents]


def _current_texts(
    streams: Mapping[str, MemoryStream], atoms: Mapping[int, Sequence[MemoryAtom]], shown: Collection[int]
) -> dict[str, str]:
    return {label: _current(stream, atoms.get(stream.pk, ()), shown) for label, stream in streams.items()}


def _current(stream: MemoryStream, atoms: Iterable[MemoryAtom], numbered: Collection[int]) -> str:
    others = [atom.content for atom in atoms if atom.pk not in numbered]
    return current_text(stream, others[:CURRENT_ITEMS])


def _read(user: UserProfile, streams: Iterable[MemoryStream]) -> dict[int, list[MemoryAtom]]:
    """Return the atoms that an engine may receive, latest first, keyed by stream."""
    active = MemoryAtom.objects.active().visible_to(user).exclude(attribute__in=WRITTEN_ATTRIBUTES).only(*COLUMNS)
    found: dict[int, MemoryAtom] = {}
    for atoms in _queries_for(active, list(streams)):
        found |= {atom.pk: atom for atom in atoms}
    of_streams: dict[int, list[MemoryAtom]] = {}
    for atom in sorted(found.values(), key=attrgetter("formed_at", "pk"), reverse=True):
        of_streams.setdefault(atom.stream_id, []).append(atom)
    return of_streams


def _queries_for(active: MemoryAtomQuerySet, streams: Sequence[MemoryStream]) -> Iterable[MemoryAtomQuerySet]:
    """Yield one query for all session streams, and one or two for each other stream."""
    own = [stream for stream in streams if stream.stream_type == MemoryStream.Type.SESSION]
    if own:
        yield active.filter(stream__in=own).newest_first()[: CURRENT_STATEMENTS * len(own)]
    for stream in (stream for stream in streams if stream not in own):
        yield active.filter(stream=stream).newest_first()[: CURRENT_STATEMENTS + CURRENT_ITEMS]
        if not stream.is_shard:
            yield active.filter(stream=stream).order_by("-worth", "-formed_at", "-id")[:CURRENT_STATEMENTS]


def _of_other_sessions(user: UserProfile, streams: Collection[MemoryStream]) -> list[MemoryAtom]:
    """Return the newest statements from the person's sessions with the run's agents, except sessions in the run."""
    own = [stream for stream in streams if stream.stream_type == MemoryStream.Type.SESSION]
    if not own:
        return []
    of_sessions = {"stream__stream_type": MemoryStream.Type.SESSION, "stream__user": user, "user": user}
    active = MemoryAtom.objects.active().filter(**of_sessions, stream__agent_id__in={one.agent_id for one in own})
    found = active.exclude(stream__in=own).exclude(attribute__in=WRITTEN_ATTRIBUTES).select_related("stream")
    return list(found.only(*COLUMNS, "stream__agent_id").newest_first()[:CURRENT_STATEMENTS])
