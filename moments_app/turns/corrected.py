"""Turns that say what was corrected since, as engines read them: nothing wrong is made of them again."""

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence

from moments_app.models import CorrectedTurn
from sessions_app.models import Message


def as_corrected(turns: Sequence[Message]) -> list[Message]:
    """Return turns with the right words in the place of the wrong ones; one statement. The turns themselves stay."""
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


def with_marks(content: str, marks: Iterable[tuple[str, str]]) -> str:
    """Return the text of a turn as it was said, with what was corrected in it since.

    Args:
        content: as it was said.
        marks: the words that were wrong, and those in their place, oldest first; blank: none.
    """
    told: dict[str, str] = {}
    for wrong, right in marks:
        said = next((said for said, now in told.items() if now and now.casefold() == wrong.casefold()), wrong)
        told[said] = right  # a later correction of what an earlier one put there
    for wrong, right in told.items():
        if not right:
            content += " (withdrawn since)"
        elif right.casefold() != wrong.casefold():
            content += f" (corrected since: {right}, not {wrong})"
    return content
