"""Sessions with turns that are past the retention period, and checks that hold wherever the turns are."""

import gzip
import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core import signing
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection
from django.utils import timezone

from moments_app.models import Job, Moment
from moments_app.models.job import TASK
from sessions_app.models import Archive, Session, UserProfile
from sessions_app.retention import archive_files
from sessions_app.retention.restore import restore_archive
from sessions_app.tasks import rewrite_archives
from sessions_app.transcript.append import NewMessage, append
from tests.support.transcript import arrived_when_said

OLD = timedelta(days=70)
# A row in the format of the release where each archive had its own file.
EARLIER_ROW = """
INSERT INTO sessions_app_archive (session_id, user_id, month, name, first_sequence, last_sequence, turn_count,
    byte_count, sha256, block_sequences, block_offsets, created_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, now())
"""


def covered_session(user: UserProfile, count: int, *, session_id: str = "s1", live: int = 0) -> Session:
    """Create old turns in a moment and a summary, half of them in the month before, and newer live turns."""
    start = timezone.now().replace(day=1, hour=0) - OLD
    start = start.replace(day=28)
    times = [start + timedelta(days=5) * (number // max(count // 2, 1)) for number in range(count)]
    batch = [
        NewMessage(
            "assistant" if number % 2 else "user",
            f'Turn {number} 🏺 \\ "quoted"\nand a second line',
            payload={"number": number, "float": 0.1, "nested": [None, True, "é"]} if number % 3 else None,
            created_at=time + timedelta(microseconds=number * 7919),
            external_id=f"m{number}",
            metadata={"n": number},
        )
        for number, time in enumerate(times)
    ]
    batch += [NewMessage("user", f"live {number}") for number in range(live)]
    session = append(user, session_id, batch).session
    arrived_when_said(session)
    cover(session, count)
    return session


def cover(session: Session, count: int) -> None:
    """Let memory cover the first turns, so that none of them is live."""
    moment = Moment.objects.create(
        user_id=session.user_id,
        source_session=session,
        key=f"k-{session.pk}-{count}",
        name="k",
        summary="s",
        starts_at=session.created_at,
        ends_at=session.created_at,
        first_sequence=0,
        last_sequence=max(count - 1, 0),
        engine="test",
    )
    session.messages.turns().filter(sequence__lt=count, moment=None).update(moment=moment)
    session.live_from_sequence, session.summarised_sequence = count, count - 1
    session.save(update_fields=["live_from_sequence", "summarised_sequence"])


def in_table(session: Session) -> list[bytes]:
    """Return the turns in the transcript's table, each as a line with all its columns."""
    return list(archive_files.lines_of(session.messages.turns()))


def in_archives(session: Session) -> list[bytes]:
    """Return the turns in files that a row refers to, by month."""
    return [line for archive in session.archives.order_by("month") for line in archive_files.read(archive)]


def fingerprint(session: Session) -> str:
    """Return a hash of all turns in the table, with all their columns."""
    return hashlib.sha256(b"\n".join(in_table(session))).hexdigest()


def files(folder: Path) -> list[Path]:
    """Return all files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def restore_all() -> None:
    """Restore the archives of all sessions."""
    for session in Session.objects.all():
        restore_archive(session, actor="test")


def rewrite_queued() -> None:
    """Run the queued work on archives."""
    for job in Job.objects.filter(process=TASK, task__startswith="rewrite_archives ").order_by("id"):
        _, args, _ = signing.loads(job.params["call"], salt=TASK)
        rewrite_archives(*args)
        job.delete()


def named() -> set[str]:
    """Return the names of all files that rows refer to."""
    return set(Archive.objects.values_list("name", flat=True))


def texts_in(folder: Path) -> str:
    """Return the unpacked text of all files below a folder."""
    return "".join(gzip.decompress(path.read_bytes()).decode() for path in files(folder))


def as_earlier_releases_did(session: Session, line_of: Callable[[bytes], bytes] = bytes) -> None:
    """Move each month of a session to a separate file in the session's folder, with a row in the earlier format.

    Args:
        session: A session with archived turns.
        line_of: Converts a current line to an earlier format.
    """
    there = set(session.archives.values_list("name", flat=True))
    for archive in session.archives.all():
        content = gzip.compress(b"".join(line_of(line) + b"\n" for line in archive_files.read(archive)))
        name = f"{archive_files.folder_of(session)}/{archive.month:%Y-%m}-{archive.last_sequence}.jsonl.gz"
        storages["archive"].save(name, ContentFile(content))
        row: list[Any] = [session.pk, session.user_id, archive.month, name]
        row += [archive.first_sequence, archive.last_sequence, archive.turn_count, len(content)]
        row += [hashlib.sha256(content).hexdigest(), [archive.first_sequence], [0]]
        archive.delete()
        with connection.cursor() as cursor:
            cursor.execute(EARLIER_ROW, row)
    archive_files.discard(there - named())


def archived_without_rows(session: Session) -> None:
    """Archive like older versions: without rows of the turns, and without arrival times in the file."""
    as_earlier_releases_did(session, _without_arrival)
    session.archives.update(block_sequences=[], block_offsets=[])
    session.messages.archived().delete()


def _without_arrival(line: bytes) -> bytes:
    columns = {name: value for name, value in json.loads(line).items() if name != "arrived_at"}
    return json.dumps(columns, separators=(",", ":")).encode()  # in PostgreSQL's format
