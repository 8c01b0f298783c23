"""Apply later corrections to turns for engines, so that nothing wrong is derived from them again."""

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence

from moments_app.models import CorrectedTurn
from sessions_app.models import Message


def as_corrected(turns: Sequence[Message]) -> list[Message]:
    """Return turns with wrong words replaced, using one statement. The turns themselves stay unchanged."""
    marks: dict[tuple[int, int], list[CorrectedTurn]] = defaultdict(list)
    for mark in CorrectedTurn.objects.filter(
        user__in={turn.user_id for turn in turns},
        session__in={turn.session_id for turn in turns},
        sequence__in={turn.sequence for turn in turns},
    ).order_by("pk"):
        marks[mark.session_id, mark.sequence].append(mark)
    return [_read(turn, marks.get((turn.session_id, turn.sequence), [])) for turn in turns]


def _read(turn: Message, marks: Sequence[CorrectedTurn]) -> Message:
    if not marks:
        return turn
    read = copy.copy(turn)
    for mark in marks:
        read.content = mark.read(read.content)
    return read


def correction_marks(marks: Iterable[tuple[str, str]]) -> str:
    """Return the marks that the text of a turn ends with, one for each later correction.

    Args:
        marks: the wrong words with their replacements, oldest first; blank: none.
    """
    text = ""
    told: dict[str, str] = {}
    for wrong, right in marks:
        said = next((said for said, now in told.items() if now and now.casefold() == wrong.casefold()), wrong)
        told[said] = right  # a later correction of an earlier replacement
    for wrong, right in told.items():
        if not right:
            text += " (withdrawn since)"
        elif right.casefold() != wrong.casefold():
            text += f" (corrected since: {right}, not {wrong})"
    return text
