"""`export_user`: write all data about a person as a zip of JSON lines, which is readable without this product.

One transaction reads a single snapshot. It runs in the role of requests, so it can't read rows of other people. If
there is a replica that has all previous commits, the transaction reads from it. Only a few rows are in memory at a
time. Archived turns are read from their files.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import IO
from zipfile import ZIP_DEFLATED, ZipFile

from django.utils import timezone

from sessions_app.database.several_servers import read_as_of_now
from sessions_app.models import Archive, Message, Session, UserProfile
from sessions_app.people.export_format import FORMAT, VERSION, ExportState, File, Line, plain
from sessions_app.people.provenance import Provenance, declared
from sessions_app.refusals import Refusal
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.row_security import acting_for

README = """Everything that is stored about one person.

Each file below contains JSON lines in UTF-8: one JSON object per line. Times are in ISO 8601. `session_id` identifies a
session, `session_id` and `sequence` identify a turn, and `key` identifies a moment. manifest.json has the version of
this format.

{files}

The export leaves out data that can be rebuilt from these files: vectors, word counts, and finished background work. It
also leaves out API keys.
"""


class CannotExport(Refusal):
    """Some data of the person can't be read. The message names it."""

    code, status = "archive_unreadable", 500


def export_user(user_id: str, file: IO[bytes], *, application: int) -> Counter[str]:
    """Write a person's export to an empty file. Return the number of rows by file.

    If an error occurs, the file doesn't contain a valid export.

    Raises:
        UserProfile.DoesNotExist: The application with this primary key has no person with this id.
        CannotExport: An archive is missing or damaged.
    """

    def write() -> Counter[str]:
        file.seek(0)  # discard the output of a failed attempt on a replica
        file.truncate()
        return _write_export(user_id, file, application)

    return read_as_of_now(write)


def _write_export(user_id: str, file: IO[bytes], application: int) -> Counter[str]:
    entered = acting_for(user_id, application=application, snapshot=True)
    with entered as user, ZipFile(file, "w", ZIP_DEFLATED) as export:
        if user is None:
            raise UserProfile.DoesNotExist(f"There is no user {user_id!r}.")
        exporting = ExportState(user)
        files = [(one, provenance) for provenance in declared() for one in provenance.files if not one.is_former]
        export.writestr("README.txt", README.format(files="\n".join(f"{one.path}: {one.about}" for one, _ in files)))
        manifest = {"format": FORMAT, "version": VERSION, "exported_at": timezone.now()}
        export.writestr("manifest.json", json.dumps(manifest, default=plain))
        return Counter({one.name: _write(export, one, _lines(one, whose, exporting)) for one, whose in files})


def _lines(file: File, provenance: Provenance, exporting: ExportState) -> Iterator[Line]:
    if file.lines:
        return file.lines(file, exporting)
    rows = file.rows(exporting.user) if file.rows else provenance.rows(exporting.user)
    return file.lines_of(rows.order_by(*file.order), exporting)


def _write(export: ZipFile, file: File, lines: Iterator[Line]) -> int:
    count = 0
    with export.open(file.path, "w", force_zip64=True) as written:
        for line in lines:
            written.write(json.dumps(line, ensure_ascii=False, default=plain).encode() + b"\n")
            count += 1
    return count


# --- the transcript, with its archives ---


def messages(file: File, exporting: ExportState) -> Iterator[Line]:
    """Yield the messages of all sessions, including archived turns, in order."""
    for session in Session.objects.for_user(exporting.user).order_by("id").iterator():
        kept = session.messages.for_user(exporting.user).exclude(kind=Message.Kind.ARCHIVED).in_order()
        archives = [_archived(archive, session, file) for archive in session.archives.all()]
        yield from heapq.merge(*archives, file.lines_of(kept, exporting), key=_position)


def _position(line: Line) -> tuple[int, bool]:
    return line["sequence"], line["kind"] == "partition"


def _archived(archive: Archive, session: Session, file: File) -> Iterator[Line]:
    keys = dict(session.moments.values_list("pk", "key"))
    try:
        for line in archive_files.read(archive):
            turn = json.loads(line)
            for name in ("created_at", "retracted_at"):
                turn[name] = turn[name] and datetime.fromisoformat(turn[name])
            turn |= {"session_id": session.session_id, "moment_key": keys.get(turn["moment_id"])}
            yield {name: turn[name] for name in file.fields.split()}
    except ArchiveError as error:
        raise CannotExport(str(error)) from error
