"""Convert exports of earlier releases: profile lines and phrases, and lines of texts, become statements."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pydantic import AwareDatetime, ConfigDict, NonNegativeInt

from moments_app.models import Cause, MemoryAtom, MemoryStream
from moments_app.models.atom import INTEREST, TOPIC
from moments_app.streams.former_profile import FormerLine, FormerProfile, said_in, statements_of
from moments_app.streams.former_texts import FormerVersion, add_lines
from moments_app.streams.timeline import recompute_timelines, refresh_derived
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Message, Session
from sessions_app.models.session import DEFAULT_AGENT
from sessions_app.people.export_format import Shape
from sessions_app.people.import_user import ImportState

Place = tuple[str, NonNegativeInt]  # a session, and the sequence number of a turn in it
S = TypeVar("S", bound=Shape)


class LineShape(Shape):
    """A line of `profile_lines.jsonl`."""

    line_id: uuid.UUID
    heading: str
    text: str
    joint: str
    position: NonNegativeInt
    sources: list[Place]
    is_pinned: bool
    actor: str
    engine: str
    created_at: AwareDatetime
    ended_at: AwareDatetime | None
    ended_by: str
    end_reason: str


class PhraseShape(Shape):
    """A line of `profile_phrases.jsonl`."""

    phrase_id: uuid.UUID
    kind: str
    text: str
    sources: list[Place]
    created_at: AwareDatetime


class ProfileShape(Shape):
    """The line of `profile.jsonl`."""

    user_id: str
    summary: str
    interests: list[str]
    preferred_topics: list[str]
    timezone: str
    metadata: dict[str, object]
    created_at: AwareDatetime
    updated_at: AwareDatetime


class VersionShape(Shape):
    """A line of `stream_versions.jsonl`."""

    model_config = ConfigDict(extra="ignore")

    stream_id: uuid.UUID
    content_after: str
    lines: list[list[uuid.UUID] | None] | None = None
    engine: str
    created_at: AwareDatetime
    undone_at: AwareDatetime | None


def restore_texts(importing: ImportState) -> None:
    """Convert the lines of streams' texts to statements.

    A text's versions show which items were merged into each line.
    """
    versions = defaultdict(list)
    for version in _lines(importing, "stream_versions.jsonl", VersionShape):
        if version.undone_at is None:
            versions[version.stream_id].append(_version(version, importing))
    for stream in MemoryStream.objects.filter(user=importing.user).exclude(consolidated_content=""):
        if stream.atoms.lines().exists():
            continue
        own = versions[stream.stream_id]
        add_lines(MemoryAtom.objects, stream, own)
        if own:  # without versions, each consolidation's input is unknown
            given = stream.atoms.observations().filter(position=None, created_at__lte=own[-1].time)
            given.update(consolidated_at=own[0].time)


def _version(version: VersionShape, importing: ImportState) -> FormerVersion:
    atoms = importing.added[MemoryAtom]
    lines = [
        None if names is None else [pk for name in names if (pk := atoms.get((name,)))] for names in version.lines or ()
    ]
    return FormerVersion(version.content_after, lines, version.engine, version.created_at)


def restore_former(importing: ImportState) -> None:
    """Add statements for the parts of an exported profile that no statement covers."""
    former = _read(importing)
    existing = MemoryAtom.objects.of_person(importing.user).filter(content_hash__in=said_in(former))
    stream = MemoryStream.objects.ensure_of_person(importing.user, DEFAULT_AGENT)
    known, holding = (set(rows.values_list("content_hash", flat=True)) for rows in (existing, existing.current()))
    new = statements_of(former, known, holding)
    atoms = [MemoryAtom(stream=stream, user=importing.user, **columns) for columns in new]
    sources = {pk for atom in atoms for pk in atom.source_message_ids}
    sessions = dict(Message.objects.filter(pk__in=sources).values_list("pk", "session_id"))
    for atom in atoms:
        own = [sessions[pk] for pk in atom.source_message_ids if pk in sessions]
        atom.source_session_id = own[-1] if own else None
    refresh_derived(recompute_timelines([atom for atom in atoms if insert_if_missing(atom)], Cause("import_user")))


def _read(importing: ImportState) -> FormerProfile:
    [(profile, _)] = importing.export.lines("profile.jsonl", ProfileShape)
    lines = sorted(_lines(importing, "profile_lines.jsonl", LineShape), key=lambda line: line.position)
    phrases = list(_lines(importing, "profile_phrases.jsonl", PhraseShape))
    named = [one.sources for one in lines] + [one.sources for one in phrases]
    turns = _turns(importing, [place for places in named for place in places])
    return FormerProfile(
        profile.summary,
        [_line(line, [turns[place] for place in line.sources if place in turns]) for line in lines],
        profile.interests,
        profile.preferred_topics,
        {
            (INTEREST if one.kind == "interest" else TOPIC, one.text.casefold()): [
                turns[place] for place in one.sources if place in turns
            ]
            for one in phrases
        },
        profile.updated_at,
    )


def _line(line: LineShape, sources: list[int]) -> FormerLine:
    return FormerLine(
        line.text,
        line.heading,
        sources,
        line.actor,
        line.is_pinned,
        line.engine,
        line.created_at,
        line.ended_at,
        line.ended_by,
    )


def _lines(importing: ImportState, name: str, shape: type[S]) -> Iterator[S]:
    if importing.export.has(name):
        for line, _weight in importing.export.lines(name, shape):
            yield line


def _turns(importing: ImportState, places: Iterable[Place]) -> dict[Place, int]:
    """Return the primary keys of the turns listed in lines."""
    wanted = set(places)
    sessions = {name: importing.added[Session].get((name,)) for name, _ in wanted}
    names = {pk: name for name, pk in sessions.items() if pk}
    turns = Message.objects.turns().for_user(importing.user).filter(session__in=names)
    named = turns.filter(sequence__in={sequence for _, sequence in wanted})
    return {
        (names[session], sequence): pk for session, sequence, pk in named.values_list("session_id", "sequence", "pk")
    }
