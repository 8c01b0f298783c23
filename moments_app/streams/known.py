"""Select the existing items for a formation, which then receives those similar to its turns (`nearest`).

From a person's own streams, these are the current statements, numbered, with lasting and new ones first. From every
stream, these are the text and the latest other items.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.models.atom import WRITTEN_ATTRIBUTES, MemoryAtomQuerySet
from sessions_app.models import UserProfile

CURRENT_ITEMS = 20  # maximum latest items per stream
CURRENT_STATEMENTS = 200  # maximum statements per person
CURRENT_CHARS = 6_000
COLUMNS = ("stream_id", "content", "worth", "formed_at")


@dataclass(frozen=True)
class KnownItems:
    # current statements, keyed by number in the prompt; the engine refers to these numbers to end statements
    statements: Mapping[int, MemoryAtom] = field(default_factory=dict)
    of_other_sessions: Collection[int] = ()  # the numbers of statements from the person's other sessions
    current: Mapping[str, str] = field(default_factory=dict)  # the text and the items of each stream, keyed by label


def known_items_of(user: UserProfile, of_sessions: Iterable[Mapping[str, MemoryStream]]) -> list[KnownItems]:
    """Return the existing items in the streams of each session.

    `of_sessions` contains the streams of each session of the person, keyed by label.
    """
    sessions = list(of_sessions)
    streams = {stream.pk: stream for labels in sessions for stream in labels.values()}
    atoms = _read(user, streams.values())
    return [_known_items(labels, atoms) for labels in sessions]


def current_text(stream: MemoryStream, contents: Iterable[str]) -> str:
    """Return a stream's text and its latest items, formatted for a request."""
    return "\n".join([stream.consolidated_content, *contents]).strip()[:CURRENT_CHARS]


def _known_items(streams: Mapping[str, MemoryStream], atoms: Mapping[int, Sequence[MemoryAtom]]) -> KnownItems:
    fed = {stream.pk for stream in streams.values()}
    own = [atom for stream in streams.values() if not stream.is_shard for atom in atoms.get(stream.pk, ())]
    own.sort(key=attrgetter("worth", "formed_at", "pk"), reverse=True)
    own = own[:CURRENT_STATEMENTS]
    others = [atom for stream, found in atoms.items() if stream not in fed for atom in found]
    others.sort(key=attrgetter("formed_at", "pk"), reverse=True)
    numbered = dict(enumerate([*own, *others[:CURRENT_STATEMENTS]], start=1))
    shown = {atom.pk for atom in own}
    return KnownItems(
        numbered,
        range(len(own) + 1, len(numbered) + 1),
        {label: _current(stream, atoms.get(stream.pk, ()), shown) for label, stream in streams.items()},
    )


def _current(stream: MemoryStream, atoms: Iterable[MemoryAtom], numbered: Collection[int]) -> str:
    others = [atom.content for atom in atoms if atom.pk not in numbered]
    return current_text(stream, others[:CURRENT_ITEMS])


def _read(user: UserProfile, streams: Iterable[MemoryStream]) -> dict[int, list[MemoryAtom]]:
    """Return the atoms that an engine may receive, latest first, keyed by stream."""
    active = MemoryAtom.objects.active().seen_by(user).exclude(attribute__in=WRITTEN_ATTRIBUTES).only(*COLUMNS)
    found: dict[int, MemoryAtom] = {}
    for atoms in _queries_for(active, list(streams)):
        found |= {atom.pk: atom for atom in atoms}
    of_streams: dict[int, list[MemoryAtom]] = {}
    for atom in sorted(found.values(), key=attrgetter("formed_at", "pk"), reverse=True):
        of_streams.setdefault(atom.stream_id, []).append(atom)
    return of_streams


def _queries_for(active: MemoryAtomQuerySet, streams: Sequence[MemoryStream]) -> Iterable[MemoryAtomQuerySet]:
    """Yield two queries for the streams of the person's sessions, and one or two for each other stream."""
    of_sessions = active.filter(stream__stream_type=MemoryStream.Type.SESSION)
    own = [stream for stream in streams if stream.stream_type == MemoryStream.Type.SESSION]
    if own:
        yield of_sessions.filter(stream__in=own).newest_first()[: CURRENT_STATEMENTS * len(own)]
        agents = {stream.agent_id for stream in own}
        others = of_sessions.filter(user=own[0].user_id, stream__agent_id__in=agents).exclude(stream__in=own)
        yield others.newest_first()[:CURRENT_STATEMENTS]
    for stream in (stream for stream in streams if stream not in own):
        yield active.filter(stream=stream).newest_first()[: CURRENT_STATEMENTS + CURRENT_ITEMS]
        if not stream.is_shard:
            yield active.filter(stream=stream).order_by("-worth", "-formed_at", "-id")[:CURRENT_STATEMENTS]
