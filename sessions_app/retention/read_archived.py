"""`read_archived`: read the text of some archived turns from their files.

Use this only for a few turns, such as those on a page, or those from which memory is rebuilt. For each turn, only the
block that contains it is read. If the file has just been replaced, the new file is read. If the storage fails or hangs,
a request continues without the text after at most `SECONDS`. A job continues without the missing texts, and is retried
later.
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

SECONDS = 2.0  # maximum seconds for reading all files while a request waits
MORE_SECONDS = 30.0  # maximum seconds for reading all files in a job
THREADS = 4  # threads per process that read files; if the storage hangs, it blocks no other threads
UNREADABLE = "(archived; the text can't be read right now)"
MISSING = "The texts of some archived turns can't be read."

# The primary key of a session, and the sequence number of a turn.
TurnPlace = tuple[int, int]
# The name of a file, and the offset of a block.
FilePart = tuple[str, int]

# A turn is in the file of the month of its `created_at`.
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
    """Read the texts of archived turns of a person, with one query, and one read per block.

    Returns the texts by place, except those of turns that aren't archived or whose file can't be read.
    """
    return {place: turn["content"] for place, turn in _turns(user, places, SECONDS).items()}


def with_text(user: UserProfile, messages: Sequence[Message]) -> Sequence[Message]:
    """Set the text, payload and metadata of archived messages, in memory only. Return all messages.

    Those whose file can't be read get the text `UNREADABLE`.
    """
    archived = _archived(messages)
    turns = _turns(user, archived.keys(), SECONDS)
    unreadable: dict[str, Any] = {"content": UNREADABLE, "payload": None, "metadata": {}}
    _fill_in(archived, {place: turns.get(place, unreadable) for place in archived})
    return messages


def with_readable_text(user: UserProfile, messages: Iterable[Message]) -> tuple[list[Message], list[SequenceRange]]:
    """Set the texts of archived messages of one session like `with_text`, with a longer timeout. For jobs.

    Return the messages that have text, and the ranges (first, last) of the sequence numbers of messages whose file
    can't be read.
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
    """Read turns from their files. Turns that can't be read within `seconds` are missing from the result."""
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
