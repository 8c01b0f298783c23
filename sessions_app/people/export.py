"""`export_user`: write everything that is kept about a person to a zip of JSON lines, readable without this product.

One transaction reads a snapshot under the role of requests, so that rows of other people can't get in. Only a few rows
are in memory at a time, however long the history. Archived turns are read back from their files.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import IO, Any, cast
from zipfile import ZIP_DEFLATED, ZipFile

from django.utils import timezone

from sessions_app.models import Archive, Event, Message, Session, UserProfile
from sessions_app.people.export_format import (
    FORMAT,
    VERSION,
    EventRow,
    MessageRow,
    Part,
    ProfileRow,
    ProfileVersionRow,
    SessionRow,
    plain,
    rows_of,
)
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.row_security import acting_for
from sessions_app.signals import user_exporting

README = """What is kept about one person.

Each file below holds JSON, one object a line, in UTF-8. Times are ISO 8601. A session is named by `session_id`, a turn
by its session and `sequence`, a moment by its `key`. manifest.json names the version of this format.

{files}

Not in it, for it is made of the above and can be made again: vectors, counts of words, and the work that was done.
Keys of the interface are not in it either.
"""


class CannotExport(Exception):
    """Some of the person's data can't be read. The message names it."""


def export_user(user_id: str, file: IO[bytes]) -> Counter[str]:
    """Write a person's export.

    Args:
        user_id: The application's id of the person.
        file: The file to write to. After an error, its content is not a valid export.

    Returns:
        The number of rows written, by kind.

    Raises:
        UserProfile.DoesNotExist: Nobody has that id.
        CannotExport: An archive is missing or damaged.
    """
    with acting_for(user_id, snapshot=True) as user, ZipFile(file, "w", ZIP_DEFLATED) as export:
        if user is None:
            raise UserProfile.DoesNotExist(f"There is no user {user_id!r}.")
        parts = list(PARTS)
        for _receiver, added in user_exporting.send(sender=UserProfile):
            parts += cast(Iterable[Part], added)
        export.writestr("README.txt", README.format(files="\n".join(f"{part.file}: {part.about}" for part in parts)))
        manifest = {"format": FORMAT, "version": VERSION, "exported_at": timezone.now()}
        export.writestr("manifest.json", json.dumps(manifest, default=plain))
        return Counter({part.name: _write(export, part, user) for part in parts})


def _write(export: ZipFile, part: Part, user: UserProfile) -> int:
    count = 0
    with export.open(part.file, "w", force_zip64=True) as file:
        for row in part.rows(user):
            file.write(json.dumps(row, ensure_ascii=False, default=plain).encode() + b"\n")
            count += 1
    return count


def _profile(user: UserProfile) -> Iterator[dict[str, Any]]:
    return rows_of(UserProfile.objects.filter(pk=user.pk), ProfileRow)


def _profile_versions(user: UserProfile) -> Iterator[dict[str, Any]]:
    for row in rows_of(user.versions.order_by("id"), ProfileVersionRow):
        yield row | {"actor": row["actor"].partition(":")[0]}  # without the operator's name


def _sessions(user: UserProfile) -> Iterator[dict[str, Any]]:
    return rows_of(Session.objects.for_user(user).order_by("id"), SessionRow)


def _events(user: UserProfile) -> Iterator[dict[str, Any]]:
    return rows_of(Event.objects.filter(user_pk=user.pk).order_by("id"), EventRow)


# --- the transcript ---


def _messages(user: UserProfile) -> Iterator[dict[str, Any]]:
    for session in Session.objects.for_user(user).order_by("id").iterator():
        kept = session.messages.for_user(user).exclude(kind=Message.Kind.ARCHIVED).in_order()
        lookups = {"session_id": "session__session_id", "moment_key": "moment__key"}
        archives = [_archived(archive, session) for archive in session.archives.all()]
        yield from heapq.merge(*archives, rows_of(kept, MessageRow, **lookups), key=_place)


def _place(row: dict[str, Any]) -> tuple[int, bool]:
    return row["sequence"], row["kind"] == "partition"


def _archived(archive: Archive, session: Session) -> Iterator[dict[str, Any]]:
    """Yield the turns of an archive.

    Raises:
        CannotExport: The file is missing, or is not the one that was written.
    """
    keys = dict(session.moments.values_list("pk", "key"))
    try:
        for line in archive_files.read(archive):
            yield _unarchived(json.loads(line), session.session_id, keys)
    except ArchiveError as error:
        raise CannotExport(str(error)) from error


def _unarchived(turn: dict[str, Any], session_id: str, keys: dict[int, str]) -> dict[str, Any]:
    for name in ("created_at", "retracted_at"):
        turn[name] = turn[name] and datetime.fromisoformat(turn[name])
    turn |= {"session_id": session_id, "moment_key": keys.get(turn["moment_id"])}
    return {name: turn[name] for name in MessageRow.names()}


PARTS = [
    Part("profile", "who it is, and what is known of them in general", _profile),
    Part("profile_versions", "how the profile was before each change, oldest first", _profile_versions),
    Part("sessions", "conversations", _sessions),
    Part("messages", "every turn of them, archived ones too; `retracted_at`: no longer believed", _messages),
    Part("events", "what happened", _events),
]
