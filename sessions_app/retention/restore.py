"""`restore_archive`: restore archived turns of a session to the transcript, exactly as they were.

Before anything is changed, all files are read and verified. Restored turns are kept for `RETENTION__TRANSCRIPT_DAYS`.
"""

from dataclasses import dataclass
from datetime import date

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from sessions_app.models import Archive, Event, Session
from sessions_app.models.message import Message
from sessions_app.refusals import Conflict
from sessions_app.retention import archive_files

MAX_BATCH_LINES = 1_000
MAX_BATCH_BYTES = 1_000_000  # approximate number of bytes to write at once

_COLUMNS = ", ".join(archive_files.COLUMNS)
# PostgreSQL parses the JSON that it has written itself. If a turn's row exists, restore only its text, because its
# other columns are newer than the file. Older versions deleted the rows of archived turns. Such turns are inserted. If
# the file has no arrival time, it is set to the present. If the turn's moment was deleted, the restored turn refers to
# no moment. The name of the moments' table comes from the foreign key, because another app defines the table.
_FROM_FILE = {
    "moment_id": "moment.id",
    "arrived_at": "COALESCE(turn.arrived_at, now())",
    "name": "COALESCE(turn.name, '')",
}
_RESTORE_SQL = f"""
INSERT INTO sessions_app_message AS message ({_COLUMNS})
SELECT {", ".join(_FROM_FILE.get(column, f"turn.{column}") for column in archive_files.COLUMNS)}
FROM json_populate_recordset(NULL::sessions_app_message, %s::json) turn
LEFT JOIN {Message.moment_table()} moment ON moment.id = turn.moment_id AND moment.user_id = turn.user_id
ON CONFLICT ON CONSTRAINT sessions_app_message_pkey DO UPDATE SET
    kind = excluded.kind, content = excluded.content, payload = excluded.payload, metadata = excluded.metadata,
    said_hash = NULL
WHERE message.kind = 'archived' AND (message.session_id, message.user_id) = (excluded.session_id, excluded.user_id)
"""  # noqa: S608 (columns of our own)
_PLACE_TAKEN = "{}: the session already has one of the archived turns, or another turn with the same external_id."


class CannotRestore(Conflict):
    """There is nothing to restore, or a turn's place is taken. The message says why."""


@dataclass(frozen=True)
class RestoreResult:
    files: int
    turns: int


def restore_archive(session: Session, *, actor: str, month: date | None = None) -> RestoreResult:
    """Restore archived turns, and remove them from their files. `month` is the first day of a month, or None for all.

    Raises:
        CannotRestore: There is no archive, a turn's place is taken, or retention is processing the session.
        ArchiveError: A file is missing or damaged. Nothing is changed.
    """
    with transaction.atomic():
        if Session.objects.claim_archive(session.pk) is None:
            raise CannotRestore(f"The archives of {session} are being changed. Try again later.")
        archives = _archives(session, month)
        for archive in archives:
            archive_files.check(archive)
        locked = Session.objects.locked().get(pk=session.pk)
        for archive in archives:
            restore_turns(archive)
        _reopen(locked, archives)
        return _finish(locked, archives, actor)


def _archives(session: Session, month: date | None) -> list[Archive]:
    # Locked, so no process replaces and removes their files before they are read.
    archives = session.archives.select_for_update(no_key=True).order_by("first_sequence")
    found = list(archives.filter(month=month) if month else archives)
    if not found:
        raise CannotRestore(f"{session} has no archive{f' of {month:%Y-%m}' if month else ''}.")
    return found


def restore_turns(archive: Archive) -> None:
    """Write the turns of an archive into the table, in the caller's transaction.

    Raises CannotRestore if a turn's place is taken, or ArchiveError if the file is missing or damaged.
    """
    with connection.cursor() as cursor:
        for lines in archive_files.blocks_of(archive_files.read(archive), MAX_BATCH_BYTES, MAX_BATCH_LINES):
            rows = (b"[" + b",".join(lines) + b"]").decode()
            try:
                cursor.execute(_RESTORE_SQL, [rows])
            except IntegrityError:
                raise CannotRestore(_PLACE_TAKEN.format(archive.name)) from None
            if cursor.rowcount != len(lines):
                raise CannotRestore(_PLACE_TAKEN.format(archive.name))


def _reopen(session: Session, archives: list[Archive]) -> None:
    first = archives[0].first_sequence
    session.kept_from_sequence = min(session.kept_from_sequence, first)
    session.embedded_sequence = min(session.embedded_sequence, first - 1)  # some restored turns may have no vector
    session.restored_at = timezone.now()
    session.save(update_fields=["kept_from_sequence", "embedded_sequence", "restored_at"])


def _finish(session: Session, archives: list[Archive], actor: str) -> RestoreResult:
    names = {archive.name for archive in archives}
    restored = RestoreResult(len(names), sum(archive.turn_count for archive in archives))
    archive_files.remove_archives(session.user_id, session.archives.filter(pk__in=[archive.pk for archive in archives]))
    Event.objects.create(
        type="archive_restored",
        actor=actor,
        user_pk=session.user_id,
        session_pk=session.pk,
        payload={"files": restored.files, "turns": restored.turns},
    )
    return restored
