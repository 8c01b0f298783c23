"""Platform text: text that this platform itself put into a conversation. Memory must not feed on itself.

It is recognized by what was served, not by its form. When a turn arrives, its lines are compared with those served to
the person before (see `served_lines`), and the platform's lines are recorded. So what a person said before it was ever
served stays theirs, and so does what they say about a context.
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet

from moments_app.models import OwnText
from moments_app.turns import served_lines
from moments_app.turns.corrected import as_corrected
from moments_app.turns.served_lines import (
    MEMORY_TOOLS,
    TextLine,
    may_be_platform_text,
    platform_places,
    text_lines,
    text_without,
)
from sessions_app.database.sql import array_of
from sessions_app.models import Message, Session
from sessions_app.transcript.append import NewMessage

# Raw SQL, because most appends run it: the ORM takes longer to compile it than PostgreSQL to run it.
_SERVED_SQL = "SELECT hash, is_quote FROM moments_app_servedline WHERE user_id = %s AND hash = ANY(%s::bigint[])"
LINES = 5_000  # maximum lines of a turn that are compared: no context has more
LIKELY = "served lines"  # the note of a message with lines that may have been served
COMPARED = (Message.Role.USER, Message.Role.ASSISTANT, Message.Role.TOOL)  # system turns are not remembered at all


def compare_lines(messages: Iterable[NewMessage]) -> None:
    """Hash the lines of messages that may repeat served text: several lines, or one with a date in memory's format.

    The lines are stored in the message's `notes`. `note_platform_text` compares them within the transaction.
    """
    for new in messages:
        if new.role in COMPARED and (text := _text(new)):
            lines = text_lines(text)
            if may_be_platform_text(lines[:LINES]):
                for line in lines[:LINES]:
                    line.hash  # noqa: B018 (cached from here on)
                new.notes[LIKELY] = lines


def note_platform_text(session: Session, messages: Iterable[Message]) -> None:
    """Record which lines of new turns were served before. If none is likely to be, run no statement."""
    likely = [(turn, lines) for turn in messages if (lines := turn.notes.get(LIKELY))]
    known = _served(session, {line.hash for _, own in likely for line in own[:LINES]}) if likely else {}
    if known:
        found = [_own_text(turn, own, platform_places(own[:LINES], known)) for turn, own in likely]
        OwnText.objects.bulk_create([own for own in found if own])


def _text(turn: Message | NewMessage) -> str:
    """Return the text of a turn as engines receive it: for a tool's result without text, its payload."""
    if turn.role == Message.Role.TOOL and not turn.content and turn.payload is not None:
        return json.dumps(turn.payload, sort_keys=True)  # the database doesn't keep the order of keys
    return turn.content


def _served(session: Session, hashes: set[int]) -> dict[int, bool]:
    """Return the hashes that were served to the person of a session, and whether each only quotes."""
    waiting = served_lines.not_written_yet(session.user_id)
    with connection.cursor() as cursor:
        cursor.execute(_SERVED_SQL, [session.user_id, array_of(hashes)])
        known: dict[int, bool] = dict(cursor.fetchall())
    for line in hashes & waiting.keys():
        known[line] = known.get(line, True) and waiting[line]
    return known


def _own_text(turn: Message, lines: Sequence[TextLine], places: list[int]) -> OwnText | None:
    if not places:
        return None
    is_whole = not text_without(lines, places)
    return OwnText(
        session_id=turn.session_id,
        user_id=turn.user_id,
        sequence=turn.sequence,
        places=None if is_whole else places,
    )


def drop_platform_text(turns: Sequence[Message]) -> list[Message]:
    """Return turns as engines read them: corrected, without platform text, and without turns that have no other text.

    Uses two statements.
    """
    both = zip(turns, blank_platform_text(turns), strict=True)
    return [left for turn, left in both if left is turn or left.content]


def blank_platform_text(turns: Sequence[Message]) -> list[Message]:
    """Return corrected turns without platform text. Turns that have no other text stay, blank."""
    if not turns:
        return []
    places = {(own.session_id, own.sequence): own.places for own in _of(turns)}
    return as_corrected([_without(turn, places) for turn in turns])


def _of(turns: Sequence[Message]) -> QuerySet[OwnText]:
    return OwnText.objects.filter(
        user_id__in={turn.user_id for turn in turns},
        session_id__in={turn.session_id for turn in turns},
        sequence__in={turn.sequence for turn in turns},
    )


def _without(turn: Message, places: Mapping[tuple[int, int], list[int] | None]) -> Message:
    at = (turn.session_id, turn.sequence)
    is_result = turn.role == Message.Role.TOOL and turn.tool_name in MEMORY_TOOLS
    if at not in places and not is_result:
        return turn
    left, own = copy.copy(turn), places.get(at)
    left.content = "" if is_result or own is None else text_without(text_lines(_text(turn)), own)
    if turn.role == Message.Role.TOOL:
        left.payload = None  # otherwise it would be shown instead of the text
    return left


def is_only_platform_text() -> Exists:
    """Return the condition that a message has only platform text."""
    at = {"user_id": OuterRef("user_id"), "session_id": OuterRef("session_id"), "sequence": OuterRef("sequence")}
    return Exists(OwnText.objects.filter(**at, places__isnull=True))
