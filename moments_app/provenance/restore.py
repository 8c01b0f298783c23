"""What of a person's export is memory's: restored after the transcript, in the same transaction.

Moments, summaries, streams with their texts and atoms, and entities. Receipts, jobs and what shards had from the person
are not: they tell of another installation. What has a public number keeps it unless somebody else has it here.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.conf import settings

from moments_app.models import (
    Entity,
    EntityLink,
    Job,
    MemoryAtom,
    MemoryStream,
    Moment,
    OwnText,
    StreamVersion,
    Summary,
)
from moments_app.models.atom import content_hash
from moments_app.models.embedding import ask_to_embed
from moments_app.provenance.export_format import (
    AtomRow,
    EntityLinkRow,
    EntityRow,
    MomentRow,
    OwnTextRow,
    StreamRow,
    StreamVersionRow,
    SummaryRow,
)
from moments_app.recall.count_words import CountWords
from moments_app.streams.lines import split_lines
from sessions_app.insert import insert_as_they_are, insert_unless_there
from sessions_app.models import Message, Session, UserProfile
from sessions_app.people.export_format import Row, batched
from sessions_app.people.import_user import ExportFile

REQUESTED_BY = "import_user"


def restore(export: ExportFile, user: UserProfile, sessions: dict[str, Session]) -> Counter[str]:
    """Restores what `moments_app.provenance.export` wrote.

    Args:
        export: that is being read.
        user: whom it becomes.
        sessions: those that are new, by their ids; what belongs to others is left out.

    Returns:
        How many rows were added, by what they are.
    """
    restoring = _Restoring(export, user, sessions)
    added = Counter(
        moments=restoring.moments(),
        summaries=restoring.summaries(),
        streams=restoring.streams(),
        stream_versions=restoring.versions(),
        atoms=restoring.atoms(),
        own_texts=restoring.own_texts(),
        entities=restoring.entities(),
        entity_links=restoring.entity_links(),
    )
    if added.total():
        Job.objects.request(CountWords.name, user_id=user.pk, requested_by=REQUESTED_BY, force=True)
        ask_to_embed(REQUESTED_BY, user_id=user.pk)
    for session in sessions.values() if settings.EMBEDDING.turns else ():
        ask_to_embed(REQUESTED_BY, session=session)
    return added


class _Restoring:
    """One import: whom it is for, and the rows here that stand for what the files name."""

    def __init__(self, export: ExportFile, user: UserProfile, sessions: dict[str, Session]) -> None:
        self._export, self._user, self._sessions = export, user, sessions
        self._streams: dict[uuid.UUID, MemoryStream] = {}
        self._versions: dict[tuple[uuid.UUID, int], StreamVersion] = {}
        self._lines: dict[int, list[list[uuid.UUID] | None]] = {}  # what versions' lines carry, by primary key
        self._entities: dict[uuid.UUID, Entity] = {}

    def moments(self) -> int:
        """Moments, and which turns they are made of; with what is there already they are one chain."""
        UserProfile.objects.locked().get(pk=self._user.pk)  # whoever changes the chain holds it
        there = set(Moment.objects.for_user(self._user).values_list("key", flat=True))
        count = 0
        for rows in batched(self._export.rows("moments", MomentRow)):
            moments = [
                Moment(user=self._user, source_session=self._session(row), **_columns(row))
                for row in rows
                if row.key not in there
            ]
            insert_as_they_are(moments)
            Moment.objects.relink(self._user.pk, moments)
            count += len(moments)
            for moment in moments:
                if moment.source_session:
                    held = (moment.first_sequence, moment.last_sequence)
                    moment.source_session.messages.turns().filter(sequence__range=held).update(moment=moment)
        return count

    def summaries(self) -> int:
        """The versions of the summaries of new sessions."""
        pks: dict[tuple[str, int | None], int] = {}
        for rows in batched(self._export.rows("summaries", SummaryRow)):
            new = [row for row in rows if row.session_id in self._sessions]
            sources = self._sources(new)
            summaries = [
                Summary(
                    user=self._user,
                    session=self._session(row),
                    source_message_ids=sources(row),
                    **_columns(row, "number", "base"),
                )
                for row in new
            ]
            insert_as_they_are(summaries)
            for row, summary in zip(new, summaries, strict=True):
                pks[row.session_id, row.number] = summary.pk
                summary.base_id = pks.get((row.session_id, row.base))
            Summary.objects.bulk_update(summaries, ["base"])
        return len(pks)

    def streams(self) -> int:
        """Streams; one that is there is left alone, with all that is in it."""
        for rows in batched(self._export.rows("streams", StreamRow)):
            free = self._free(MemoryStream, "stream_id", [row.stream_id for row in rows])
            for row in rows:
                if row.stream_id not in free or (row.session_id and row.session_id not in self._sessions):
                    continue
                columns = _columns(row) | {"stream_id": free[row.stream_id]}
                stream = MemoryStream(user=self._user, session=self._session(row), **columns)
                if insert_unless_there(stream):
                    self._streams[row.stream_id] = stream
        return len(self._streams)

    def versions(self) -> int:
        """How the texts of new streams came to be."""
        for rows in batched(self._export.rows("stream_versions", StreamVersionRow)):
            new = [row for row in rows if row.stream_id in self._streams]
            versions = [
                StreamVersion(
                    user=self._user,
                    stream=self._streams[row.stream_id],
                    **_columns(row, "stream_id", "number", "lines"),
                )
                for row in new
            ]
            insert_as_they_are(versions)
            for row, version in zip(new, versions, strict=True):
                self._versions[row.stream_id, row.number] = version
                if row.lines is not None and len(row.lines) == len(split_lines(row.content_after)):
                    self._lines[version.pk] = row.lines
        return len(self._versions)

    def atoms(self) -> int:
        """Facts and observations of new streams, and which lines carry them."""
        pks: dict[uuid.UUID, int] = {}
        for rows in batched(self._export.rows("atoms", AtomRow)):
            free = self._free(MemoryAtom, "atom_id", [row.atom_id for row in rows])
            new = [row for row in rows if row.stream_id in self._streams and row.atom_id in free]
            sources = self._sources(new)
            atoms = [
                MemoryAtom(
                    user=self._user,
                    stream=self._streams[row.stream_id],
                    content_hash=content_hash(row.content),
                    absorbed_in=self._versions.get((row.stream_id, row.absorbed_in or 0)),
                    shown_in=self._versions.get((row.stream_id, row.shown_in or 0)),
                    source_session=self._session(row),
                    source_message_ids=sources(row),
                    **_columns(row, "stream_id", "absorbed_in", "shown_in") | {"atom_id": free[row.atom_id]},
                )
                for row in new
            ]
            insert_as_they_are(atoms)
            pks |= {row.atom_id: atom.pk for row, atom in zip(new, atoms, strict=True)}
        for version, lines in self._lines.items():
            carried = [None if line is None else [pks[pk] for pk in line if pk in pks] for line in lines]
            StreamVersion.objects.filter(pk=version).update(lines=carried)
        return len(pks)

    def own_texts(self) -> int:
        """Which lines of the turns of new sessions the platform had served."""
        count = 0
        for rows in batched(self._export.rows("own_texts", OwnTextRow)) if self._export.has("own_texts") else ():
            new = [row for row in rows if row.session_id in self._sessions]
            texts = [OwnText(user=self._user, session=self._session(row), **_columns(row)) for row in new]
            insert_as_they_are(texts)
            count += len(texts)
        return count

    def entities(self) -> int:
        """Tasks, goals and problems."""
        for rows in batched(self._export.rows("entities", EntityRow)):
            free = self._free(Entity, "entity_id", [row.entity_id for row in rows])
            new = [row for row in rows if row.entity_id in free]
            entities = [
                Entity(
                    user=self._user,
                    source_session=self._session(row),
                    **_columns(row) | {"entity_id": free[row.entity_id]},
                )
                for row in new
            ]
            insert_as_they_are(entities)
            self._entities |= {row.entity_id: entity for row, entity in zip(new, entities, strict=True)}
        return len(self._entities)

    def entity_links(self) -> int:
        """Links between new ones."""
        count = 0
        for row in self._export.rows("entity_links", EntityLinkRow):
            ends = self._entities.get(row.from_entity), self._entities.get(row.to_entity)
            if all(ends):
                link = EntityLink(user=self._user, from_entity=ends[0], to_entity=ends[1], relation=row.relation)
                count += insert_unless_there(link)
        return count

    def _session(self, row: Any) -> Session | None:
        """The session that a row names, when it is new."""
        return self._sessions.get(row.session_id)

    def _sources(self, rows: Iterable[Any]) -> Callable[[Any], list[int]]:
        """What tells the primary keys of the turns that a row is made of."""
        named: dict[str, set[int]] = defaultdict(set)
        for row in rows:
            if row.session_id in self._sessions:
                named[row.session_id].update(row.source_sequences)
        pks = {
            (session_id, sequence): pk
            for session_id, sequences in named.items()
            for sequence, pk in Message.objects.turns()
            .filter(session=self._sessions[session_id], sequence__in=sequences)
            .values_list("sequence", "pk")
        }
        return lambda row: [pks[key] for n in row.source_sequences if (key := (row.session_id, n)) in pks]

    def _free(self, model: Any, column: str, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
        """Under which number each can be added: its own, or one made of it where it is somebody else's.

        Those that this person has already are left out.
        """

        def owners(wanted: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
            return dict(model.objects.filter(**{f"{column}__in": wanted}).values_list(column, "user_id"))

        taken = owners(ids)
        others = {pk: uuid.uuid5(pk, self._user.user_id) for pk in ids if taken.get(pk, self._user.pk) != self._user.pk}
        there = owners(others.values())
        own = {pk: pk for pk in ids if pk not in taken}
        return own | {pk: made for pk, made in others.items() if made not in there}


def _columns(row: Row, *but: str) -> dict[str, Any]:
    """The columns that are in a table as they are in a file."""
    return row.model_dump(exclude={*but, "session_id", "source_sequences"})
