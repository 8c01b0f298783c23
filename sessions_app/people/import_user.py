"""`import_user`: a person's export becomes a person again, here or elsewhere, under the same name or another.

All of it or nothing. It can be repeated: what is there already stays as it is, and a session that is there is left
alone with all that belongs to it. What is made of the rest, vectors and counts of words, is asked for.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile, ZipFile

from django.db import DatabaseError, transaction
from django.db.models import Min, QuerySet
from pydantic import ValidationError

from sessions_app.insert import insert_as_they_are, insert_unless_there
from sessions_app.models import Session, UserProfile
from sessions_app.people.export_format import AT_ONCE, File, Manifest, Model, NameOf, Restored, Shape, batched
from sessions_app.people.provenance import declared
from sessions_app.refusals import Refusal

LINE_MAX = 64 * 2**20  # bytes

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
        if file.is_newer and file.path not in self._archive.namelist():
            return
        try:
            opened = self._archive.open(file.path)
        except KeyError:
            raise NotAnExport(f"{self._path} has no {file.path}.") from None
        with opened:
            number = 0
            while line := opened.readline(LINE_MAX + 1):
                number += 1
                self.at = f"{self._path}, {file.path} line {number}"
                if len(line) > LINE_MAX:
                    raise NotAnExport(f"{self.at} is longer than {LINE_MAX} bytes.")
                yield file.restored(self._checked(line, file.shape))
        self.at = str(self._path)

    def manifest(self) -> Manifest:
        """Return what the file says that it is.

        Raises:
            NotAnExport: it is something else.
        """
        self.at = f"{self._path}, manifest.json"
        try:
            content = self._archive.read("manifest.json")
        except KeyError:
            raise NotAnExport(f"{self._path} is no export of a person: it has no manifest.json.") from None
        return self._checked(content, Manifest)

    def _checked(self, line: bytes, shape: type[S]) -> S:
        try:
            return shape.model_validate_json(line)
        except ValidationError as error:
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
        with ZipFile(path) as archive:
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
        raise NotAnExport(f"{path} is no whole zip file.") from error
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
    added: dict[Model, dict[tuple[Any, ...], int]] = field(default_factory=lambda: defaultdict(dict))
    there: dict[Model, set[str]] = field(default_factory=lambda: defaultdict(set))
    later: dict[Model, dict[int, Any]] = field(default_factory=lambda: defaultdict(dict))

    def taken(self, model: Model, column: str, names: Collection[str]) -> set[str]:
        """Return those of the names that rows of the person had before this import."""
        named = model._base_manager.filter(**{"user": self.user, f"{column}__in": names})
        found = {name for name in named.values_list(column, flat=True) if (name,) not in self.added[model]}
        self.there[model] |= found
        return found

    def sessions(self) -> QuerySet[Session]:
        """Return the sessions that were added."""
        return Session.objects.for_user(self.user).filter(pk__in=self.added[Session].values())

    def restore(self, file: File) -> int:
        """Restore the rows of a file; returns how many were added."""
        count = 0
        for rows in batched(self.export.rows(file)):
            for column in file.columns:
                rows = column.read(rows, self)
            rows = self._insert(file, rows)
            if file.key:
                self.added[file.model] |= {tuple(row.line[name] for name in file.key): row.row.pk for row in rows}
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
    """Restore the profile, with its versions; one that is there already stays as it is."""
    rows = list(export.rows(files["profile"]))
    if len(rows) != 1:
        raise NotAnExport(f"{export.at}: profile.jsonl has {len(rows)} lines in place of one.")
    fields = rows[0].columns | {"application_id": application} | ({"user_id": user_id} if user_id else {})
    profile = UserProfile(**fields)
    if not insert_unless_there(profile):
        user = UserProfile.objects.get(application=application, user_id=profile.user_id)
        UserProfile.objects.hold([user.pk])
        return Importing(export, user, Counter())
    # Inserting has set the times to now.
    UserProfile.objects.filter(pk=profile.pk).update(created_at=fields["created_at"], updated_at=fields["updated_at"])
    importing = Importing(export, profile, Counter(profiles=1))
    importing.restore(files["profile_versions"])
    return importing


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
