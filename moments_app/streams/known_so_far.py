"""What the streams of a person have, while sessions are formed one after the other and nothing is stored yet."""

from collections.abc import Iterable, Mapping, Sequence

from django.db.models import Q

from moments_app.engines.statements import NAME
from moments_app.models import MemoryAtom, MemoryStream
from moments_app.streams.formation import CURRENT_FACTS, CURRENT_ITEMS, Known, current_text
from sessions_app.models import UserProfile

MOST_FACTS = 500  # of a stream that are read
READ = (
    "stream_id",
    "user_id",
    "is_candidate",
    "atom_type",
    "content",
    "content_hash",
    "worth",
    "formed_at",
)


class KnownSoFar:
    """See the module's text.

    Args:
        user: whose sessions are formed.
        streams: that they feed.
    """

    def __init__(self, user: UserProfile, streams: Iterable[MemoryStream]) -> None:
        self._streams = {stream.pk: stream for stream in streams}
        atoms = {atom.pk: atom for atom in _read(user, self._streams.values())}
        self._atoms: dict[int, list[MemoryAtom]] = {pk: [] for pk in self._streams}
        for pk in sorted(atoms):
            self._atoms[atoms[pk].stream_id].append(atoms[pk])
        told = MemoryAtom.objects.findable().filter(user=user).exclude(attribute="")
        self._attributes = set(told.values_list("attribute", flat=True).distinct())

    def known(self, streams: Mapping[str, MemoryStream]) -> Known:
        """Return what a session's streams have now, by their labels."""
        own = [atom for stream in streams.values() if not stream.is_shard for atom in self._facts(stream.pk)]
        facts = _by_worth(own)[:CURRENT_FACTS]
        return Known(
            dict(enumerate(facts, start=1)),
            {label: self._current(stream, facts) for label, stream in streams.items()},
        )

    def _facts(self, stream: int) -> list[MemoryAtom]:
        atoms = self._atoms[stream]
        return [atom for atom in atoms if atom.atom_type == MemoryAtom.Type.FACT and not atom.is_candidate]

    def _current(self, stream: MemoryStream, facts: Sequence[MemoryAtom]) -> str:
        numbered = {id(fact) for fact in facts}
        others = [atom for atom in _newest_first(self._atoms[stream.pk]) if id(atom) not in numbered]
        return current_text(stream, [atom.content for atom in others[:CURRENT_ITEMS]])

    def add(self, atoms: Iterable[MemoryAtom]) -> bool:
        """Take in what a session adds.

        Returns:
            False when it may end what was said before, or make two people one: that is decided once it is stored.
        """
        new = [atom.describe() for atom in atoms if not self._has(atom)]
        for atom in new:
            self._atoms[atom.stream_id].append(atom)
        timed = {atom.attribute for atom in new if atom.attribute and not atom.is_candidate}
        is_open = bool(timed & {*self._attributes, NAME})
        self._attributes |= timed
        return not is_open

    def _has(self, atom: MemoryAtom) -> bool:
        return any(other.content_hash == atom.content_hash for other in self._atoms[atom.stream_id])


def _read(user: UserProfile, streams: Iterable[MemoryStream]) -> list[MemoryAtom]:
    """Return what streams have for a person: all of a session's own, of others what may be shown."""
    own = [stream for stream in streams if stream.stream_type == MemoryStream.Type.SESSION]
    active = MemoryAtom.objects.active().seen_by(user).only(*READ)
    found = list(active.filter(Q(stream__in=own)))
    for stream in (stream for stream in streams if stream not in own):
        atoms = active.filter(stream=stream)
        found += atoms.newest_first()[: CURRENT_FACTS + CURRENT_ITEMS]
        if not stream.is_shard:
            found += atoms.facts().filter(is_candidate=False).order_by("-worth", "-formed_at", "-id")[:MOST_FACTS]
    return found


def _newest_first(atoms: Sequence[MemoryAtom]) -> list[MemoryAtom]:
    """Return atoms by when they were said, of two said at once the one that came later first."""
    places = sorted(range(len(atoms)), key=lambda place: (atoms[place].formed_at, place), reverse=True)
    return [atoms[place] for place in places]


def _by_worth(atoms: Sequence[MemoryAtom]) -> list[MemoryAtom]:
    """Return facts in the order in which an engine is shown them."""
    return sorted(_newest_first(atoms), key=lambda atom: atom.worth, reverse=True)
