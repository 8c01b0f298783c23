"""What this platform itself put into a conversation: memory must not feed on itself.

It is known by what was served, not by how it looks: when a turn arrives its lines are compared with those served about
the person until then (`served_text` says how), and which of them are the platform's own is noted beside the turn. So
what a person said before it was ever served stays theirs, and so does what they say about a context.
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet

from moments_app.models import OwnText
from moments_app.turns import served_lines
from moments_app.turns.served_text import TOOLS, Line, lines_of, may_be_own, own_places, without
from sessions_app.models import Message, Session

# By hand, as appends of several lines have it: the ORM takes longer to write it down than PostgreSQL to do it.
_SERVED_SQL = "SELECT hash, is_quote FROM moments_app_servedline WHERE user_id = %s AND hash = ANY(%s)"
LINES = 5_000  # of a turn that are compared: no context has more
COMPARED = (Message.Role.USER, Message.Role.ASSISTANT, Message.Role.TOOL)  # system turns are not remembered at all


def note_own_text(session: Session, messages: Iterable[Message]) -> None:
    """Notes which lines of turns that are being appended were served before.

    No statement where no turn has what a served text looks like: several lines, or one with a date as memory writes it.
    """
    lines = {turn: lines_of(text) for turn in messages if turn.role in COMPARED and (text := _text(turn))}
    asked = {turn: own for turn, own in lines.items() if may_be_own(own)}
    known = _served(session, {line.hash for own in asked.values() for line in own[:LINES]}) if asked else {}
    if known:
        found = [_own_text(turn, own, own_places(own[:LINES], known)) for turn, own in asked.items()]
        OwnText.objects.bulk_create([own for own in found if own])


def _text(turn: Message) -> str:
    """What engines are shown of a turn: of a tool's result without text what it holds."""
    if turn.role == Message.Role.TOOL and not turn.content and turn.payload is not None:
        return json.dumps(turn.payload, sort_keys=True)  # the database has no order of its own
    return turn.content


def _served(session: Session, hashes: set[int]) -> dict[int, bool]:
    """Those of the hashes that were served about the person of a session, and whether each only quotes."""
    waiting = served_lines.not_written_yet(session.user_id)
    with connection.cursor() as cursor:
        cursor.execute(_SERVED_SQL, [session.user_id, list(hashes)])
        known: dict[int, bool] = dict(cursor.fetchall())
    for line in hashes & waiting.keys():
        known[line] = known.get(line, True) and waiting[line]
    return known


def _own_text(turn: Message, lines: Sequence[Line], places: list[int]) -> OwnText | None:
    if not places:
        return None
    is_whole = not without(lines, places)
    return OwnText(
        session_id=turn.session_id,
        user_id=turn.user_id,
        sequence=turn.sequence,
        places=None if is_whole else places,
    )


def as_said(turns: Sequence[Message]) -> list[Message]:
    """The turns without what the platform itself put there; those with nothing else are left out. One statement."""
    both = zip(turns, without_own_text(turns), strict=True)
    return [left for turn, left in both if left is turn or left.content]


def without_own_text(turns: Sequence[Message]) -> list[Message]:
    """The same, with turns that have nothing else there still, blank."""
    if not turns:
        return []
    places = {(own.session_id, own.sequence): own.places for own in _of(turns)}
    return [_without(turn, places) for turn in turns]


def _of(turns: Sequence[Message]) -> QuerySet[OwnText]:
    return OwnText.objects.filter(
        user_id__in={turn.user_id for turn in turns},
        session_id__in={turn.session_id for turn in turns},
        sequence__in={turn.sequence for turn in turns},
    )


def _without(turn: Message, places: Mapping[tuple[int, int], list[int] | None]) -> Message:
    at = (turn.session_id, turn.sequence)
    is_result = turn.role == Message.Role.TOOL and turn.tool_name in TOOLS
    if at not in places and not is_result:
        return turn
    left, own = copy.copy(turn), places.get(at)
    left.content = "" if is_result or own is None else without(lines_of(_text(turn)), own)
    if turn.role == Message.Role.TOOL:
        left.payload = None  # else it would be shown in place of the text
    return left


def is_wholly_own() -> Exists:
    """As a condition on messages: they have nothing but what the platform put there."""
    at = {"user_id": OuterRef("user_id"), "session_id": OuterRef("session_id"), "sequence": OuterRef("sequence")}
    return Exists(OwnText.objects.filter(**at, places__isnull=True))
