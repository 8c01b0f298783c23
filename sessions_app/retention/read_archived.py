"""`read_archived`: the text of some archived turns, read back from their files.

It is for the few turns that somebody is shown. Of a file only the part with the turn is read, whatever its size. A
storage that fails or hangs costs the texts that are in it and at most `SECONDS`, never what they are wanted for.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import structlog
from django.db import connection

from sessions_app.models import Message, UserProfile
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError

SECONDS = 2.0  # that all files together may take
THREADS = 4  # of a process; a storage that hangs holds no more
UNREADABLE = "(archived; its text can't be read just now)"

# A primary key of a session, and the sequence of a turn.
Place = tuple[int, int]
# Of a file: its name, and where a part of it begins.
Part = tuple[str, int]

# One after another by `message_archived`: right after the first turns of a site were archived, the planner would expect
# hardly any, and read all of them. A turn is in the file of the month in which it was said.
_PARTS_SQL = """
SELECT message.session_id, message.sequence, archive.name,
    archive.block_offsets[width_bucket(message.sequence, archive.block_sequences)]
FROM unnest(%(sessions)s::bigint[], %(sequences)s::bigint[]) place (session_id, sequence)
CROSS JOIN LATERAL (
    SELECT * FROM sessions_app_message
    WHERE session_id = place.session_id AND user_id = %(user)s AND sequence = place.sequence AND kind = 'archived'
    LIMIT 1
) message
JOIN sessions_app_archive archive ON archive.session_id = message.session_id AND archive.user_id = message.user_id
    AND archive.month = date_trunc('month', message.created_at AT TIME ZONE 'UTC')::date
"""

logger = structlog.get_logger(__name__)
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="archive")


def read_archived(user: UserProfile, places: Collection[Place]) -> dict[Place, str]:
    """Read the text of archived turns; one statement, and a part of a file for turns that stand together.

    Args:
        user: whose turns they are; others' are not found.
        places: of the turns.

    Returns:
        The text by place; none of a turn that isn't archived, or whose file can't be read.
    """
    return {place: turn["content"] for place, turn in _turns(user, places).items()}


def with_text(user: UserProfile, messages: Sequence[Message]) -> Sequence[Message]:
    """Give the archived ones among a person's messages their text, payload and metadata back, in memory alone.

    Returns:
        The same messages; one whose file can't be read says so in place of its text.
    """
    archived = {(m.session_id, m.sequence): m for m in messages if m.kind == Message.Kind.ARCHIVED}
    turns = _turns(user, archived.keys()) if archived else {}
    for place, message in archived.items():
        turn = turns.get(place, {"content": UNREADABLE, "payload": None, "metadata": {}})
        message.kind = Message.Kind.TURN
        message.content, message.payload, message.metadata = turn["content"], turn["payload"], turn["metadata"]
    return messages


def _turns(user: UserProfile, places: Collection[Place]) -> dict[Place, dict[str, Any]]:
    """The turns as they were written down."""
    reads = {
        _threads.submit(archive_files.read_some, *part, [sequence for _session, sequence in wanted]): part
        for part, wanted in _parts(user, places).items()
    }
    done, late = wait(reads, SECONDS)
    for read in late:
        read.cancel()
        logger.warning("archive not read", name=reads[read][0], reason=f"it takes longer than {SECONDS} s")
    turns = (turn for read in done for turn in _read(read))
    return {(turn["session_id"], turn["sequence"]): turn for turn in turns if turn["user_id"] == user.pk}


def _parts(user: UserProfile, places: Collection[Place]) -> Mapping[Part, list[Place]]:
    """Where the turns at these places are."""
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
