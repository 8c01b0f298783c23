"""`import_user`: a person's export becomes a person again, here or elsewhere, under the same name or another.

All of it or nothing. It can be repeated: what is there already stays as it is, and a session that is there is left
alone with all that belongs to it. What is made of the rest, vectors and counts of words, is asked for. Some lines are
in memory at a time, no more than fit; what has to be known of all rows is on the disk.
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
from django.db import DatabaseError, transaction
from django.db.models import Min
from pydantic import ValidationError
from pydantic_core import from_json

from sessions_app.bounded import MIB, ZipRefused, has_more_values, most_values, open_member, open_zip
from sessions_app.insert import insert_as_they_are, insert_unless_there
from sessions_app.models import Session, UserProfile
from sessions_app.people.export_format import AT_ONCE, File, Manifest, Model, NameOf, Restored, Shape, batched
from sessions_app.people.on_disk import OnDisk
from sessions_app.people.provenance import declared
from sessions_app.refusals import Refusal

LINE_MAX = 16 * MIB  # bytes; more where messages may be longer than usual
USUAL_CHARS = 1_000_000  # of a message, for which that is enough
CHAR_BYTES = 6  # that a character takes at most: \u0001
VALUES_MAX = 500_000  # of a line
MANIFEST_MAX = 10_000  # bytes
FAULTS_MAX = 100  # of a line; of more, none is named
WEIGHT_MAX = 16 * MIB  # of the rows that are in memory at a time
VALUE_BYTES = 60  # that a value takes in memory beside its text

S = TypeVar("S", bound=Shape)


class NotAnExport(Refusal):
    """The file is none of ours, or damaged. The message names file and line, and never the text there."""


class ExportFile:
    """An export that is being read.

    Args:
        path: of the zip.
        archive: the open zip.
    """

    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path, self._archive = path, archive
        self.at = str(path)

    def rows(self, file: File) -> Iterator[Restored]:
        """Yield the lines of a file.

        Raises:
            NotAnExport: there is no such file, or a line has not its shape.
        """
        if file.is_newer and not self.has(file.path):
            return
        for line, weight in self.lines(file.path, file.shape):
            row = file.restored(line)
            row.weight = weight
            yield row

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return name in self._archive.NameToInfo

    def lines(self, name: str, shape: type[S]) -> Iterator[tuple[S, int]]:
        """Yield the lines of a file, each with about how many bytes of memory it takes.

        Raises:
            NotAnExport: there is no such file, or a line has not this shape.
        """
        longest = LINE_MAX + CHAR_BYTES * max(0, settings.MESSAGE_MAX_CHARS - USUAL_CHARS)
        with self._opened(name, f"{self._path} has no {name}.") as opened:
            number = 0
            while line := opened.readline(longest + 1):
                number += 1
                self.at = f"{self._path}, {name} line {number}"
                yield self._checked(line, shape, longest), len(line) + VALUE_BYTES * most_values(line)
        self.at = str(self._path)

    def manifest(self) -> Manifest:
        """Return what the file says that it is.

        Raises:
            NotAnExport: it is something else.
        """
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
        # Each field that is none of the shape's would be a fault, and a fault takes three hundred bytes.
        if isinstance(values, dict) and len(values) > 2 * len(shape.model_fields):
            raise NotAnExport(f"{self.at} has {len(values):,} fields.")
        try:
            return shape.model_validate(values)
        except ValidationError as error:
            if error.error_count() > FAULTS_MAX:
                raise NotAnExport(f"{self.at} has more than {FAULTS_MAX} errors.") from None
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"][:1])
            raise NotAnExport(f"{self.at}: {f'{where}: ' if where else ''}{first['msg']}") from None


@contextmanager
def opened(path: Path) -> Iterator[ExportFile]:
    """Open an export.

    Raises:
        NotAnExport: what is wrong with the file, whenever it is found out.
    """
    try:
        with path.open("rb") as file, open_zip(file) as archive:
            export = ExportFile(path, archive)
            try:
                export.manifest()
                yield export
            except (DatabaseError, UnicodeError, OverflowError) as error:
                raise NotAnExport(
                    f"{export.at}, or one of the {AT_ONCE} lines before: the database refuses it "
                    f"({type(error).__name__})."
                ) from error
    except (BadZipFile, zlib.error, EOFError) as error:
        raise NotAnExport(f"{path} is not a complete zip file.") from error
    except ZipRefused as error:
        raise NotAnExport(f"{path}: {error}") from None
    except OSError as error:
        raise NotAnExport(f"{path}: {error.strerror}") from error


@dataclass
class Importing:
    """An import under way.

    Args:
        export: the file.
        user: whom it becomes.
        counts: how many rows were added, by file.
        added: primary keys of the rows that were added, by table and by what names them in the export.
        there: names of rows that were there already, by table.
        later: what is to be written of rows when others are there, by table and primary key.
    """

    export: ExportFile
    user: UserProfile
    counts: Counter[str]
    added: dict[Model, OnDisk] = field(default_factory=lambda: defaultdict(OnDisk))
    there: dict[Model, OnDisk] = field(default_factory=lambda: defaultdict(OnDisk))
    later: dict[Model, OnDisk] = field(default_factory=lambda: defaultdict(OnDisk))

    def taken(self, model: Model, column: str, names: Collection[str]) -> set[str]:
        """Return those of the names that rows of the person had before this import."""
        named = model._base_manager.filter(**{"user": self.user, f"{column}__in": names})
        found = {name for name in named.values_list(column, flat=True) if (name,) not in self.added[model]}
        self.there[model].update((name, True) for name in found)
        return found

    def sessions(self) -> Iterator[Session]:
        """Yield the sessions that were added."""
        for pks in batched(self.added[Session].values()):
            yield from Session.objects.for_user(self.user).filter(pk__in=pks)

    def restore(self, file: File) -> int:
        """Restore the rows of a file; returns how many were added."""
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

    def _insert(self, file: File, rows: list[Restored]) -> list[Restored]:
        for row in rows:
            row.row = file.model(user=self.user, **row.columns)
        if file.may_be_there:
            return [row for row in rows if insert_unless_there(row.row)]
        insert_as_they_are([row.row for row in rows])
        return rows


def _batches(rows: Iterable[Restored]) -> Iterator[list[Restored]]:
    """Yield as many rows at a time as fit."""
    batch: list[Restored] = []
    weight = 0
    for row in rows:
        if batch and (len(batch) == AT_ONCE or weight + row.weight > WEIGHT_MAX):
            yield batch
            batch, weight = [], 0
        batch.append(row)
        weight += row.weight
    if batch:
        yield batch


def import_user(path: Path, *, application: int, user_id: str | None = None) -> Counter[str]:
    """Restore a person from an export.

    Args:
        path: of the zip.
        application: primary key of the one that the person becomes one of.
        user_id: whom it becomes; None is whom it was.

    Returns:
        How many rows were added, by what they are.

    Raises:
        NotAnExport: nothing was imported.
    """
    with opened(path) as export, transaction.atomic(durable=True):
        files = {file.name: file for provenance in declared() for file in provenance.files}
        importing = _begin(export, files, application, user_id)
        for name, file in files.items():
            if file.is_restored:
                importing.counts[name] = importing.restore(file)
        for provenance in declared():
            if provenance.imported:
                provenance.imported(importing)
    return importing.counts


def _begin(export: ExportFile, files: dict[str, File], application: int, user_id: str | None) -> Importing:
    """Restore the profile; one that is there already stays as it is."""
    rows = list(islice(export.rows(files["profile"]), 2))
    if len(rows) != 1:
        raise NotAnExport(f"{export.at}: profile.jsonl has {len(rows)} lines instead of one.")
    fields = rows[0].columns | {"application_id": application} | ({"user_id": user_id} if user_id else {})
    profile = UserProfile(**fields)
    if not insert_unless_there(profile):
        user = UserProfile.objects.get(application=application, user_id=profile.user_id)
        UserProfile.objects.hold([user.pk])
        return Importing(export, user, Counter())
    # Inserting has set the times to now.
    UserProfile.objects.filter(pk=profile.pk).update(created_at=fields["created_at"], updated_at=fields["updated_at"])
    return Importing(export, profile, Counter(profiles=1))


# --- the transcript ---


class SessionOfMessage(NameOf):
    """The session of a message, which the export has as well."""

    def read(self, rows: list[Restored], importing: Importing) -> list[Restored]:
        for row in rows:
            name = row.line[self.name]
            if (name,) not in importing.added[Session] and name not in importing.there[Session]:
                raise NotAnExport(f"{importing.export.at}: sessions.jsonl has no session of this message.")
        return super().read(rows, importing)


def keep_from_first_turn(importing: Importing) -> None:
    """Note where transcripts begin: turns deleted before the export are gone, archived ones are there again."""
    for session in importing.sessions():
        first = session.messages.turns().aggregate(first=Min("sequence"))["first"]
        session.kept_from_sequence = session.last_sequence + 1 if first is None else first
        session.save(update_fields=["kept_from_sequence"])
