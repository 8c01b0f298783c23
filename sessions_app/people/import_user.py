"""`import_user`: restore a person from an export, on this site or another, under the same name or a new one.

The import happens completely or not at all. It can be repeated: rows that are there already stay as they are, and a
session that is there already is left alone with everything that belongs to it. For the new rows, the jobs that make
vectors and word counts are requested.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile, ZipFile

from django.db import DatabaseError, transaction
from django.db.models import Min
from pydantic import ValidationError

from sessions_app.insert import insert_as_they_are, insert_unless_there
from sessions_app.models import Message, ProfileVersion, Session, UserProfile
from sessions_app.people.export_format import (
    AT_ONCE,
    Manifest,
    MessageRow,
    ProfileRow,
    ProfileVersionRow,
    Row,
    SessionRow,
    batched,
)
from sessions_app.signals import user_importing

LINE_MAX = 64 * 2**20  # bytes

R = TypeVar("R", bound=Row)


class NotAnExport(Exception):
    """The file isn't one of our exports, or is damaged. The message names file and line, but never the text there."""


class ExportFile:
    """An export that is being read.

    Args:
        path: The path of the zip.
        archive: The open zip.
    """

    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path, self._archive = path, archive
        self.at = str(path)

    def has(self, name: str) -> bool:
        """Return True if the export has this file. Older exports have fewer files."""
        return f"{name}.jsonl" in self._archive.namelist()

    def rows(self, name: str, shape: type[R]) -> Iterator[R]:
        """Yield the lines of a file.

        Args:
            name: The file's name without its extension.
            shape: The class that each line must fit.

        Raises:
            NotAnExport: There is no such file, or a line doesn't fit.
        """
        try:
            file = self._archive.open(f"{name}.jsonl")
        except KeyError:
            raise NotAnExport(f"{self._path} has no {name}.jsonl.") from None
        with file:
            number = 0
            while line := file.readline(LINE_MAX + 1):
                number += 1
                self.at = f"{self._path}, {name}.jsonl line {number}"
                if len(line) > LINE_MAX:
                    raise NotAnExport(f"{self.at} is longer than {LINE_MAX} bytes.")
                yield self._checked(line, shape)
        self.at = str(self._path)

    def manifest(self) -> Manifest:
        """Return the manifest.

        Raises:
            NotAnExport: The file is something else.
        """
        self.at = f"{self._path}, manifest.json"
        try:
            content = self._archive.read("manifest.json")
        except KeyError:
            raise NotAnExport(f"{self._path} is no export of a person: it has no manifest.json.") from None
        return self._checked(content, Manifest)

    def _checked(self, line: bytes, shape: type[R]) -> R:
        try:
            return shape.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"][:1])
            raise NotAnExport(f"{self.at}: {f'{where}: ' if where else ''}{first['msg']}") from None


@contextmanager
def open_export(path: Path) -> Iterator[ExportFile]:
    """Open an export.

    Raises:
        NotAnExport: Something is wrong with the file; this may be found out at any time until the block ends.
    """
    try:
        with ZipFile(path) as archive:
            export = ExportFile(path, archive)
            try:
                export.manifest()
                yield export
            except (DatabaseError, UnicodeError, OverflowError) as error:
                raise NotAnExport(
                    f"{export.at}, or one of the {AT_ONCE} lines before it: the database refuses it "
                    f"({type(error).__name__})."
                ) from error
    except (BadZipFile, zlib.error, EOFError) as error:
        raise NotAnExport(f"{path} is no whole zip file.") from error
    except OSError as error:
        raise NotAnExport(f"{path}: {error.strerror}") from error


def import_user(path: Path, *, user_id: str | None = None) -> Counter[str]:
    """Restore a person from an export.

    Args:
        path: The path of the zip.
        user_id: The new name; None keeps the old one.

    Returns:
        The number of rows added, by kind.

    Raises:
        NotAnExport: The file can't be read; nothing was imported.
    """
    with open_export(path) as export, transaction.atomic(durable=True):
        user, added = _profile(export, user_id)
        sessions, there = _sessions(export, user)
        added["sessions"] = len(sessions)
        added["messages"] = _messages(export, sessions, there)
        for _receiver, restored in user_importing.send(sender=UserProfile, export=export, user=user, sessions=sessions):
            added.update(restored)
    return added


def _profile(export: ExportFile, user_id: str | None) -> tuple[UserProfile, Counter[str]]:
    """Return the person, and the counts of rows added. A person who exists already stays as they are."""
    rows = list(export.rows("profile", ProfileRow))
    if len(rows) != 1:
        raise NotAnExport(f"{export.at}: profile.jsonl has {len(rows)} lines in place of one.")
    fields = rows[0].model_dump() | ({"user_id": user_id} if user_id else {})
    profile = UserProfile(**fields)
    if not insert_unless_there(profile):
        user = UserProfile.objects.get(user_id=profile.user_id)
        UserProfile.objects.hold([user.pk])
        return user, Counter()
    # Inserting set the times to now.
    UserProfile.objects.filter(pk=profile.pk).update(created_at=fields["created_at"], updated_at=fields["updated_at"])
    versions = [
        ProfileVersion(user=profile, **row.model_dump()) for row in export.rows("profile_versions", ProfileVersionRow)
    ]
    insert_as_they_are(versions)
    return profile, Counter(profiles=1)


def _sessions(export: ExportFile, user: UserProfile) -> tuple[dict[str, Session], set[str]]:
    """Add sessions; return those that were added by id, and the ids of those that were there already."""
    added: dict[str, Session] = {}
    there: set[str] = set()
    for rows in batched(export.rows("sessions", SessionRow)):
        known = Session.objects.for_user(user).filter(session_id__in=[row.session_id for row in rows])
        there |= set(known.values_list("session_id", flat=True)) - added.keys()
        new = [Session(user=user, **row.model_dump()) for row in rows if row.session_id not in there]
        insert_as_they_are(new)
        added |= {session.session_id: session for session in new}
    return added, there


def _messages(export: ExportFile, sessions: dict[str, Session], there: set[str]) -> int:
    """Add the messages of the new sessions, and return their number. Sessions that are `there` are left alone."""
    count = 0
    for rows in batched(_placed(export, {*sessions, *there})):
        new = [_message(row, sessions[row.session_id]) for row in rows if row.session_id in sessions]
        insert_as_they_are(new)
        count += len(new)
    for session in sessions.values():
        _keep_from_first_turn(session)
    return count


def _placed(export: ExportFile, session_ids: set[str]) -> Iterator[MessageRow]:
    for row in export.rows("messages", MessageRow):
        if row.session_id not in session_ids:
            raise NotAnExport(f"{export.at}: sessions.jsonl has no session of this message.")
        yield row


def _message(row: MessageRow, session: Session) -> Message:
    return Message(session=session, user_id=session.user_id, **row.model_dump(exclude={"session_id", "moment_key"}))


def _keep_from_first_turn(session: Session) -> None:
    """Set where the transcript begins: deleted turns are gone, but archived ones are in the transcript again."""
    first = session.messages.turns().aggregate(first=Min("sequence"))["first"]
    session.kept_from_sequence = session.last_sequence + 1 if first is None else first
    session.save(update_fields=["kept_from_sequence"])
