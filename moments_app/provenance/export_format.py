"""Export fields that identify rows by summary number, turn sequence number or atom id, not by primary key."""

import uuid
from collections import defaultdict
from dataclasses import asdict
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import AfterValidator, AwareDatetime, Field, PositiveInt, StringConstraints
from pydantic_core import PydanticCustomError

from moments_app.context.receipts import StoredContext
from moments_app.engines.statements import kind_of
from moments_app.jobs.process import queue_embedding
from moments_app.models import (
    Job,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    StatementChange,
    Summary,
)
from moments_app.models.atom import ABOUT, content_hash, id_hash
from moments_app.models.entity import EntityStatus, status_columns, text_of
from moments_app.models.stored_item import END, LABELS_MAX, NAMESPACE_MAX, labels, stored
from moments_app.provenance.former_export import restore_former, restore_texts
from moments_app.recall.index_words import CountWords
from moments_app.streams.edit import pin_text
from moments_app.streams.known_people import link_all
from moments_app.streams.profile import rebuild_profiles
from sessions_app.models import Message, Session, UserProfile
from sessions_app.people.export_format import Column, ExportState, Line, Model, Name, PublicId, Reference, RestoredRow
from sessions_app.people.import_user import ImportState

REQUESTED_BY = "import_user"
# Fields of tasks, goals and problems in older exports, with their types. Statements have no columns for these fields.
FORMER_FIELDS = {"title": str, "body": str, "status": Literal["open", "done", "dropped"], "updated_at": AwareDatetime}


# --- fields ---


def session_of(column: str, *, is_optional: bool = False) -> Reference:
    """Return the field that identifies a session in a file."""
    return Reference("session_id", column, Session, "session_id", is_optional=is_optional)


def stream() -> Reference:
    """Return the field that identifies a stream in a file."""
    return Reference("stream_id", "stream", MemoryStream, "stream_id")


class About(Reference):
    """The key of the known person whom an atom is about. A person with this key may already exist."""

    def __init__(self) -> None:
        super().__init__("about", "about", KnownPerson, "key", is_optional=True)

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        rows = super().read(rows, importing)
        keys = {row.line[self.name] for row in rows if row.line[self.name] and not row.columns["about_id"]}
        there = dict(KnownPerson.objects.filter(user=importing.user, key__in=keys).values_list("key", "pk"))
        for row in rows:
            row.columns["about_id"] = row.columns["about_id"] or there.get(row.line[self.name])
        return rows


class Number(Column):
    """The number of a row in its group, counted from 1. It replaces the primary key, which exports don't contain.

    Args:
        group: the field that identifies the group.
    """

    type, is_column = PositiveInt, False

    def __init__(self, group: str) -> None:
        super().__init__("number", "id")
        self._group = group

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        for line in lines:
            line["number"] = exporting.number(self.model, line[self._group], line["number"])


class NumberOf(Column):
    """The number of another row of the same group, instead of its primary key.

    Args:
        name: the name of the field and the column.
        group: the field that identifies the group.
        to: the table of the other row.
    """

    type, is_column = PositiveInt | None, False

    def __init__(self, name: str, group: str, to: Model) -> None:
        super().__init__(name, f"{name}_id")
        self._group, self._to = group, to

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        for line in lines:
            if line[self.name] is not None:
                line[self.name] = exporting.numbers[self._to][line[self.name]]

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        for row in rows:
            named = row.line[self._group], row.line[self.name]
            row.columns[self.lookup] = importing.added[self._to].get(named)
        return rows


class SourceSequences(Column):
    """The sequence numbers of a row's source turns in its session, except archived turns."""

    type, is_column = list[int], False

    def __init__(self) -> None:
        super().__init__("source_sequences", "source_message_ids")

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        pks = {pk for line in lines for pk in line[self.name]}
        turns = Message.objects.for_user(exporting.user).filter(pk__in=pks)
        found = {pk: place for pk, *place in turns.values_list("pk", "session__session_id", "sequence")}
        for line in lines:
            places = [found[pk] for pk in line[self.name] if pk in found]
            line[self.name] = [sequence for session, sequence in places if session == line["session_id"]]

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        named: dict[int, set[int]] = defaultdict(set)
        for row in rows:
            if session := self._session(row, importing):
                named[session].update(row.line[self.name])
        turns = Message.objects.turns().for_user(importing.user)
        pks = {
            (session, sequence): pk
            for session, sequences in named.items()
            for sequence, pk in turns.filter(session=session, sequence__in=sequences).values_list("sequence", "pk")
        }
        for row in rows:
            places = [(self._session(row, importing), sequence) for sequence in row.line[self.name]]
            row.columns[self.lookup] = [pks[place] for place in places if place in pks]
        return rows

    def _session(self, row: RestoredRow, importing: ImportState) -> int | None:
        pk: int | None = importing.added[Session].get((row.line["session_id"],))
        return pk


class ServedContext(Column):
    """A served context; null if it is no longer stored or can't be decrypted."""

    type, is_column = dict[str, Any] | None, False

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        for line in lines:
            kept = StoredContext.from_sealed(line[self.name], line["context_id"])
            line[self.name] = asdict(kept) if kept else None


class ValuesBefore(Column):
    """The values of a statement before a change, without primary keys."""

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        for line in lines:
            line[self.name] = StatementChange(before=line[self.name]).shown


def _within_limit(namespace: list[str]) -> list[str]:
    if sum(map(len, namespace)) > NAMESPACE_MAX:
        raise PydanticCustomError("too_long", f"The labels have more than {NAMESPACE_MAX} characters in total")
    return namespace


class Labels(Column):
    """The namespace of an item, as a list of labels."""

    type = Annotated[
        list[Annotated[str, StringConstraints(min_length=1, pattern=f"^[^\0{END}]*$")]],
        Field(min_length=1, max_length=LABELS_MAX),
        AfterValidator(_within_limit),
    ]

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        for line in lines:
            line[self.name] = labels(line[self.name])

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        for row in rows:
            row.columns[self.name] = stored(row.line[self.name])
            row.columns["application_id"] = importing.user.application_id
        return rows


class OtherAtom(Column):
    """The `atom_id` of another atom, which may come later in the file."""

    type, is_column = uuid.UUID | None, False

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        pks = {line[self.name] for line in lines}
        found = dict(MemoryAtom.objects.filter(user=exporting.user, pk__in=pks - {None}).values_list("pk", "atom_id"))
        for line in lines:
            line[self.name] = found.get(line[self.name])


class MomentKey(Name):
    """The key of a moment. Importing keys locks the person, like every change to their chain of moments."""

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        UserProfile.objects.locked().get(pk=importing.user.pk)
        return super().read(rows, importing)


class AtomText(Column):
    """The text of an atom.

    On import, derive the hash that identifies duplicates in a stream, and the kind if the export has none.
    """

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        for row in rows:
            text, atom_id = row.line[self.name], row.columns["atom_id"]
            row.columns["content_hash"] = id_hash(atom_id) if row.line["is_listed"] else content_hash(text)
            row.columns["kind"] = row.line["kind"] or kind_of(row.line[self.name])
        return rows


class IsListed(Column):
    """Whether a client wrote or reworded a task, goal or problem.

    The content hash of such a statement is computed from its id.
    """

    type, is_column = bool, False

    def __init__(self) -> None:
        super().__init__("is_listed", "content_hash")

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        for line in lines:
            line[self.name] = line[self.name] == id_hash(line["atom_id"])


class FormerEntity(Column):
    """The id of a task, goal or problem in older exports, which an import converts to a statement."""

    type, is_column = uuid.UUID, False

    def __init__(self) -> None:
        super().__init__("entity_id", "atom_id")
        self._id = PublicId("atom_id")

    def set_model(self, model: Model) -> None:
        self._id.set_model(model)

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        stream = MemoryStream.objects.ensure_list(importing.user)
        for row in rows:
            atom_id = row.columns["atom_id"] = row.line["atom_id"] = row.line[self.name]
            title, body, status, changed = (row.columns.pop(name) for name in FORMER_FIELDS)
            is_open = status == EntityStatus.OPEN
            row.columns |= {"stream": stream, "atom_type": MemoryAtom.Type.FACT, "content": text_of(title, body)}
            row.columns |= {"content_hash": id_hash(atom_id), **status_columns(status, changed, "")}
            row.columns["formed_at"] = changed if is_open else row.columns["created_at"]
        return self._id.read(rows, importing)


# --- after rows are restored ---


def link_moments(rows: list[RestoredRow], importing: ImportState) -> None:
    """Merge restored moments into the person's chain, and link their turns to them."""
    moments = [row.row for row in rows]
    Moment.objects.relink(importing.user.pk, moments)
    turns = Message.objects.turns().for_user(importing.user)
    for moment in moments:
        if moment.source_session_id:
            held = (moment.first_sequence, moment.last_sequence)
            turns.filter(session=moment.source_session_id, sequence__range=held).update(moment=moment)


def link_bases(rows: list[RestoredRow], importing: ImportState) -> None:
    """Link summary versions to their previous versions, which may be in the same batch."""
    for row in rows:
        row.row.base_id = importing.added[Summary].get((row.line["session_id"], row.line["base"]))
    Summary.objects.bulk_update([row.row for row in rows], ["base"])


def defer_references(rows: list[RestoredRow], importing: ImportState) -> None:
    """Store references between facts, and between lines and their items, until all rows exist."""
    others = {row.row.pk: {name: row.line[name] for name in ("replaced_by", "merged_into")} for row in rows}
    importing.later[MemoryAtom].update({pk: names for pk, names in others.items() if any(names.values())})


def restore_references(importing: ImportState) -> None:
    """Restore references to other items. For older exports, also restore `about_kind` and the lines of texts."""
    for stream_type, about in ABOUT.items():
        untold = MemoryAtom.objects.filter(user=importing.user, about_kind="", stream__stream_type=stream_type)
        untold.update(about_kind=about)
    for atom, names in importing.later[MemoryAtom].items():
        others = {column: importing.added[MemoryAtom].get((name,)) for column, name in names.items()}
        MemoryAtom.objects.filter(pk=atom).update(**others)
    if importing.export.has("stream_versions.jsonl"):
        restore_texts(importing)


# --- rebuilt after an import ---


def _has_memory(importing: ImportState) -> bool:
    return any(importing.counts[name] for name in ("moments", "summaries", "streams", "own_texts", "entities"))


def derive_profile(importing: ImportState) -> None:
    """Derive the profile from the statements. If an earlier release made the export, also use its lines and texts.

    If the export has no file of known people, find these people in the statements.
    """
    if importing.export.has("profile_versions.jsonl"):
        restore_former(importing)
    if not importing.export.has("people.jsonl"):
        link_all(importing.user.pk)
    rebuild_profiles([importing.user.pk])
    for stream in MemoryStream.objects.filter(user=importing.user).exclude(pinned_content=""):
        if not stream.atoms.pinned_texts().exists():  # earlier releases did not export the profile as statements
            pin_text(stream, stream.pinned_content, actor=REQUESTED_BY)


def queue_word_count(importing: ImportState) -> None:
    """Queue a count of a person's words."""
    if _has_memory(importing):
        Job.objects.request(CountWords.name, user_id=importing.user.pk, requested_by=REQUESTED_BY, force=True)


def embed_imported_memories(importing: ImportState) -> None:
    """Queue embedding of a person's facts, moments and items."""
    if _has_memory(importing) or importing.counts["items"]:
        queue_embedding(REQUESTED_BY, user_id=importing.user.pk)


def embed_imported_turns(importing: ImportState) -> None:
    """Queue embedding of the turns of sessions, if turns are embedded."""
    for session in importing.sessions() if settings.EMBEDDING.turns else ():
        queue_embedding(REQUESTED_BY, session=session)
