"""`import_user`: restore a person from an export, in this or another installation, with the same id or a new one.

An import restores everything or nothing. It can be repeated, because it doesn't change existing rows or add rows to
existing sessions. It queues jobs to rebuild derived data, such as vectors and word counts. Only a limited number of
lines is in memory at a time. Data that is needed for all rows is kept on disk.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar
from zipfile import BadZipFile, ZipFile

from django.conf import settings
from django.db import DatabaseError, OperationalError, transaction
from django.db.models import Min
from pydantic import ValidationError
from pydantic_core import from_json

from sessions_app.bounded_memory import (
    MIB,
    DiskDict,
    ZipRefused,
    has_more_values,
    max_value_count,
    open_member,
    open_zip,
)
from sessions_app.database.sql import insert_if_missing, insert_raw
from sessions_app.models import Session, UserProfile
from sessions_app.people.export_format import BATCH_SIZE, File, Manifest, Model, Reference, RestoredRow, Shape, batched
from sessions_app.people.provenance import declared
from sessions_app.refusals import Refusal

LINE_MAX = 16 * MIB  # maximum bytes of a line; increased if `MESSAGE_MAX_CHARS` exceeds `USUAL_CHARS`
USUAL_CHARS = 1_000_000  # the message length that `LINE_MAX` is meant for
CHAR_BYTES = 6  # maximum bytes of a character in JSON: \u0001
VALUES_MAX = 500_000  # maximum values of a line
MANIFEST_MAX = 10_000  # maximum bytes of the manifest
MAX_ERRORS = 100  # if a line has more errors, the error message contains none of them
WEIGHT_MAX = 16 * MIB  # bytes of the rows that are in memory at a time
VALUE_BYTES = 60  # bytes that a value takes in memory in addition to its text

S = TypeVar("S", bound=Shape)


class NotAnExport(Refusal):
    """The file is not an export, or is damaged. The message names the file and line, but never quotes their text."""


class ExportFile:
    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path, self._archive = path, archive
        self.at = str(path)

    def rows(self, file: File) -> Iterator[RestoredRow]:
        """Yield the lines of a file as rows to restore. Raise NotAnExport if the file or a line is not valid."""
        if (file.is_newer or file.is_former) and not self.has(file.path):
            return
        for line, weight in self.lines(file.path, file.shape):
            row = file.restored(line)
            row.weight = weight
            yield row

    def has(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def lines(self, name: str, shape: type[S]) -> Iterator[tuple[S, int]]:
        """Yield the lines of a file with their approximate bytes in memory. Raise NotAnExport if one is not valid."""
        longest = LINE_MAX + CHAR_BYTES * max(0, settings.MESSAGE_MAX_CHARS - USUAL_CHARS)
        with self._opened(name, f"{self._path} has no {name}.") as opened:
            number = 0
            while line := opened.readline(longest + 1):
                number += 1
                self.at = f"{self._path}, {name} line {number}"
                yield self._checked(line, shape, longest), len(line) + VALUE_BYTES * max_value_count(line)
        self.at = str(self._path)

    def manifest(self) -> Manifest:
        """Return the export's manifest. Raise NotAnExport if there is no valid one."""
        self.at = f"{self._path}, manifest.json"
        without = f"{self._path} is not an export of a person, because it has no manifest.json."
        with self._opened("manifest.json", without) as opened:
            return self._checked(opened.read(MANIFEST_MAX + 1), Manifest, MANIFEST_MAX)

    def _opened(self, name: str, missing: str) -> IO[bytes]:
        try:
            return open_member(self._archive, self._archive.getinfo(name))
        except KeyError:
            raise NotAnExport(missing) from None
        except ZipRefused as error:
            raise NotAnExport(f"{self._path}, {name}: {error}") from None

    def _checked(self, line: bytes, shape: type[S], longest: int) -> S:
        if len(line) > longest:
            raise NotAnExport(f"{self.at} is longer than {longest} bytes.")
        if has_more_values(line, VALUES_MAX):
            raise NotAnExport(f"{self.at} has more than {VALUES_MAX:,} values.")
        try:
            values = from_json(line)
        except ValueError as error:
            raise NotAnExport(f"{self.at}: Invalid JSON: {error}") from None
        # pydantic would report each unknown field as an error of three hundred bytes.
        if isinstance(values, dict) and len(values) > 2 * len(shape.model_fields):
            raise NotAnExport(f"{self.at} has {len(values):,} fields, which is too many.")
        try:
            return shape.model_validate(values)
        except ValidationError as error:
            if error.error_count() > MAX_ERRORS:
                raise NotAnExport(f"{self.at} has more than {MAX_ERRORS} errors.") from None
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"][:1])
            raise NotAnExport(f"{self.at}: {f'{where}: ' if where else ''}{first['msg']}") from None


@contextmanager
def open_export(path: Path) -> Iterator[ExportFile]:
    """Open an export. If it is not valid, raise NotAnExport, now or while it is read."""
    try:
        with path.open("rb") as file, open_zip(file) as archive:
            export = ExportFile(path, archive)
            try:
                export.manifest()
                yield export
            except OperationalError:
                raise  # the database failed; the file is not the cause
            except (DatabaseError, UnicodeError, OverflowError) as error:
                raise NotAnExport(
                    f"{export.at}, or one of the {BATCH_SIZE} lines before: the database rejected it "
                    f"({type(error).__name__})."
                ) from error
    except (BadZipFile, zlib.error, EOFError) as error:
        raise NotAnExport(f"{path} is not a complete zip file.") from error
    except ZipRefused as error:
        raise NotAnExport(f"{path}: {error}") from None
    except OSError as error:
        raise NotAnExport(f"{path}: {error.strerror}.") from error


ByTable = dict[Model, DiskDict]


def _by_table() -> ByTable:
    return defaultdict(DiskDict)


@dataclass
class ImportState:
    """An import in progress."""

    export: ExportFile
    user: UserProfile  # the person to whom the data is restored
    counts: Counter[str]  # number of added rows, keyed by file
    added: ByTable = field(default_factory=_by_table)  # primary keys of added rows, by their ids in the export
    existing: ByTable = field(default_factory=_by_table)  # ids of rows that existed before
    later: ByTable = field(default_factory=_by_table)  # values to write after other rows are restored, by primary key

    def existing_ids(self, model: Model, column: str, names: Collection[str]) -> set[str]:
        """Return which of the ids the person's rows already had before this import."""
        named = model._base_manager.filter(**{"user": self.user, f"{column}__in": names})
        found = {name for name in named.values_list(column, flat=True) if (name,) not in self.added[model]}
        self.existing[model].update((name, True) for name in found)
        return found

    def sessions(self) -> Iterator[Session]:
        for pks in batched(self.added[Session].values()):
            yield from Session.objects.for_user(self.user).filter(pk__in=pks)

    def restore(self, file: File) -> int:
        count = 0
        for rows in _batches(self.export.rows(file)):
            for column in file.columns:
                rows = column.read(rows, self)
            rows = self._insert(file, rows)
            if file.key:
                named = ((tuple(row.line[name] for name in file.key), row.row.pk) for row in rows)
                self.added[file.model].update(named)
            if file.after:
                file.after(rows, self)
            count += len(rows)
        if file.at_end:
            file.at_end(self)
        return count

    def _insert(self, file: File, rows: list[RestoredRow]) -> list[RestoredRow]:
        for row in rows:
            row.row = file.model(user=self.user, **row.columns)
        if file.skip_existing:
            return [row for row in rows if insert_if_missing(row.row)]
        insert_raw([row.row for row in rows])
        return rows


def _batches(rows: Iterable[RestoredRow]) -> Iterator[list[RestoredRow]]:
    batch: list[RestoredRow] = []
    weight = 0
    for row in rows:
        if batch and (len(batch) == BATCH_SIZE or weight + row.weight > WEIGHT_MAX):
            yield batch
            batch, weight = [], 0
        batch.append(row)
        weight += row.weight
    if batch:
        yield batch


def import_user(path: Path, *, application: int, user_id: str | None = None) -> Counter[str]:
    """Restore a person from an export. Return the number of added rows by kind.

    `application` is a primary key. `user_id` is the person's new id; None keeps the id in the export. Raises
    NotAnExport if the file is not valid. Nothing is imported in this case.
    """
    with open_export(path) as export, transaction.atomic(durable=True):
        files = {file.name: file for provenance in declared() for file in provenance.files}
        importing = _restore_profile(export, files, application, user_id)
        for name, file in files.items():
            if file.is_restored:
                importing.counts[name] = importing.restore(file)
        for provenance in declared():
            if provenance.imported:
                provenance.imported(importing)
    return importing.counts


def _restore_profile(export: ExportFile, files: dict[str, File], application: int, user_id: str | None) -> ImportState:
    """Restore the profile, or use an existing one unchanged."""
    rows = list(islice(export.rows(files["profile"]), 2))
    if len(rows) != 1:
        raise NotAnExport(f"{export.at}: profile.jsonl has {len(rows)} lines, but it must have exactly one.")
    fields = rows[0].columns | {"application_id": application} | ({"user_id": user_id} if user_id else {})
    profile = UserProfile(**fields)
    if not insert_if_missing(profile):
        user = UserProfile.objects.get(application=application, user_id=profile.user_id)
        UserProfile.objects.protect([user.pk])
        return ImportState(export, user, Counter())
    # The INSERT has set the times to the present.
    UserProfile.objects.filter(pk=profile.pk).update(created_at=fields["created_at"], updated_at=fields["updated_at"])
    return ImportState(export, profile, Counter(profiles=1))


# --- the transcript ---


class SessionOfMessage(Reference):
    """The session of a message. The export must contain it."""

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        for row in rows:
            name = row.line[self.name]
            if (name,) not in importing.added[Session] and name not in importing.existing[Session]:
                raise NotAnExport(f"{importing.export.at}: sessions.jsonl doesn't contain the session of this message.")
        return super().read(rows, importing)


def set_first_turns(importing: ImportState) -> None:
    """Set `kept_from_sequence` of added sessions to the first turn. Earlier turns were deleted before the export."""
    for session in importing.sessions():
        turns = session.messages.turns().filter(user_id=session.user_id)
        first = turns.aggregate(first=Min("sequence"))["first"]
        session.kept_from_sequence = session.last_sequence + 1 if first is None else first
        session.save(update_fields=["kept_from_sequence"])
