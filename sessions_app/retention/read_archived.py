"""`read_archived`: read the text of some archived turns back from their files.

It serves the few turns that somebody is shown, or of which memory is made again. Only the part of a file that holds the
turn is read, however large the file is. Where the file was just replaced by another, that one is read. If a storage
fails or hangs, the texts in it are missing and at most `SECONDS` are lost; the request goes on. A job goes on with the
texts that are there, too; with what it misses it is tried again.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import groupby
from typing import Any

import structlog
from django.db import connection

from sessions_app.models import Message, UserProfile
from sessions_app.models.message import SequenceRange, ids_at_places
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError

SECONDS = 2.0  # most seconds that all files together may take while somebody waits
MORE_SECONDS = 30.0  # when nobody does
THREADS = 4  # per process: a storage that hangs blocks no more than these
UNREADABLE = "(archived; its text can't be read just now)"
MISSING = "The texts of some archived turns can't be read."

# The primary key of a session, and the sequence of a turn.
TurnPlace = tuple[int, int]
# The name of a file, and the offset at which a part of it begins.
FilePart = tuple[str, int]

# A turn is in the file of the month in which it was said.
_PARTS_SQL = f"""
SELECT message.session_id, message.sequence, archive.name,
    archive.byte_offset + archive.block_offsets[width_bucket(message.sequence, archive.block_sequences)]
FROM (
    SELECT session_id, user_id, sequence, created_at FROM sessions_app_message
    WHERE user_id = %(user)s AND id = ANY ({ids_at_places("archived")})
    OFFSET 0
) message
JOIN sessions_app_archive archive ON archive.session_id = message.session_id AND archive.user_id = message.user_id
    AND archive.month = date_trunc('month', message.created_at AT TIME ZONE 'UTC')::date
"""  # noqa: S608 (constants)

logger = structlog.get_logger(__name__)
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="archive")


def read_archived(user: UserProfile, places: Collection[TurnPlace]) -> dict[TurnPlace, str]:
    """Read the text of archived turns, by one statement and one read for all turns in the same part of a file.

    Args:
        user: The owner of the turns; other people's turns are not found.
        places: The places of the turns.

    Returns:
        The text by place, without turns that aren't archived or are in a file that can't be read.
    """
    return {place: turn["content"] for place, turn in _turns(user, places, SECONDS).items()}


def with_text(user: UserProfile, messages: Sequence[Message]) -> Sequence[Message]:
    """Fill in the text, payload and metadata of the archived ones among a person's messages, only in memory.

    Returns:
        The same messages. If a file can't be read, its messages have `UNREADABLE` as their text.
    """
    archived = _archived(messages)
    turns = _turns(user, archived.keys(), SECONDS)
    unreadable: dict[str, Any] = {"content": UNREADABLE, "payload": None, "metadata": {}}
    _fill_in(archived, {place: turns.get(place, unreadable) for place in archived})
    return messages


def with_readable_text(user: UserProfile, messages: Iterable[Message]) -> tuple[list[Message], list[SequenceRange]]:
    """Fill in what `with_text` does, for those who need the texts and have time to wait for them.

    Args:
        user: The owner of the messages.
        messages: Of one session, in order.

    Returns:
        The messages whose text is there; and the others, each some in a row by the first and the last sequence.
    """
    found = list(messages)
    archived = _archived(found)
    _fill_in(archived, _turns(user, archived.keys(), MORE_SECONDS))
    runs = [(is_unread, list(run)) for is_unread, run in groupby(found, lambda m: m.kind == Message.Kind.ARCHIVED)]
    unread = [(run[0].sequence, run[-1].sequence) for is_unread, run in runs if is_unread]
    return [message for is_unread, run in runs if not is_unread for message in run], unread


def _archived(messages: Sequence[Message]) -> dict[TurnPlace, Message]:
    return {(m.session_id, m.sequence): m for m in messages if m.kind == Message.Kind.ARCHIVED}


def _fill_in(archived: Mapping[TurnPlace, Message], turns: Mapping[TurnPlace, dict[str, Any]]) -> None:
    for place in archived.keys() & turns.keys():
        message, turn = archived[place], turns[place]
        message.kind = Message.Kind.TURN
        message.content, message.payload, message.metadata = turn["content"], turn["payload"], turn["metadata"]


def _turns(user: UserProfile, places: Collection[TurnPlace], seconds: float) -> dict[TurnPlace, dict[str, Any]]:
    """Return the turns as their files have them, as far as these can be read in so many seconds."""
    if not places:
        return {}
    end = time.monotonic() + seconds
    parts = _parts(user, places)
    turns = _read_parts(user, parts, end)
    if missing := [place for wanted in parts.values() for place in wanted if place not in turns]:
        moved = {part: wanted for part, wanted in _parts(user, missing).items() if part not in parts}
        turns |= _read_parts(user, moved, end)
    return turns


def _read_parts(
    user: UserProfile, parts: Mapping[FilePart, list[TurnPlace]], end: float
) -> dict[TurnPlace, dict[str, Any]]:
    reads = {
        _threads.submit(archive_files.read_some, *part, [sequence for _session, sequence in wanted]): part
        for part, wanted in parts.items()
    }
    done, late = wait(reads, max(end - time.monotonic(), 0))
    for read in late:
        read.cancel()
        logger.warning("archive not read", name=reads[read][0], reason="it takes too long")
    turns = (turn for read in done for turn in _read(read))
    return {(turn["session_id"], turn["sequence"]): turn for turn in turns if turn["user_id"] == user.pk}


def _parts(user: UserProfile, places: Collection[TurnPlace]) -> Mapping[FilePart, list[TurnPlace]]:
    """Find the parts of files that hold the turns at these places."""
    sessions = [session for session, _sequence in places]
    sequences = [sequence for _session, sequence in places]
    parts = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_PARTS_SQL, {"user": user.pk, "sessions": sessions, "sequences": sequences})
        for session, sequence, name, offset in cursor:
            parts[name, offset].append((session, sequence))
    return parts


def _read(read: "Future[list[dict[str, Any]]]") -> list[dict[str, Any]]:
    try:
        return read.result()
    except ArchiveError as error:
        logger.warning("archive not read", reason=str(error))
        return []
