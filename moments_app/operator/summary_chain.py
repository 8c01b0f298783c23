"""The versions of a session's summary as windows over its turns: a row a version, newest first, each with its base.

A page is the 50 versions up to a window; what is drawn is within the turns that they cover.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q

from moments_app.models import Summary
from moments_app.operator.pager import first_of
from sessions_app.models import Session

PAGE = 50
THINNEST = 0.6  # per cent of the width: a window of one turn is still seen


@dataclass(frozen=True)
class Line:
    """A part of a line within a row, in per cent of its height."""

    x: float
    top: int
    bottom: int


@dataclass(frozen=True)
class Window:
    """A row of the drawing.

    Args:
        summary: the version that the window is of.
        is_stuck: nobody is working on it.
        start, end: of the bar.
        new_from: where what the base had ends and the new turns begin; None without a base.
        lines: parts of the lines from versions to their bases.
    """

    summary: Summary
    is_stuck: bool
    start: float
    end: float
    new_from: float | None
    lines: Sequence[Line]


@dataclass(frozen=True)
class Drawing:
    """A page of a session's versions.

    Args:
        windows: newest first.
        first, last: sequences that the width stands for.
        older: key of the version behind which the next page begins; None where there is none.
    """

    windows: Sequence[Window]
    first: int
    last: int
    older: int | None


def drawing(session: Session, *, older_than: Summary | None = None) -> Drawing | None:
    """Draw a page of a session's versions; None when there are none."""
    versions = Summary.objects.for_session(session).newest_first().select_related("base")
    versions = versions.defer("text", "facts", "source_message_ids", "base__text", "base__facts")
    if older_than:
        end, pk = older_than.end_sequence, older_than.pk
        versions = versions.filter(Q(end_sequence__lt=end) | Q(end_sequence=end, pk__lt=pk))
    shown, last = first_of(versions, PAGE)
    if not shown:
        return None
    stuck = set(Summary.objects.for_session(session).stuck().values_list("pk", flat=True))
    scale = _Scale(shown)
    lines = _lines(shown, scale)
    windows = [scale.window(summary, summary.pk in stuck, lines[row]) for row, summary in enumerate(shown)]
    return Drawing(windows, scale.first, scale.last, last.pk if last else None)


class _Scale:
    """Converts turns to per cent of the width."""

    def __init__(self, shown: Sequence[Summary]) -> None:
        self.first = min(summary.start_sequence for summary in shown)
        self.last = max(summary.end_sequence for summary in shown)

    def at(self, sequence: int) -> float:
        return round(100 * (sequence - self.first) / (self.last + 1 - self.first), 2)

    def window(self, summary: Summary, is_stuck: bool, lines: Sequence[Line]) -> Window:
        start, end = self.at(summary.start_sequence), self.at(summary.end_sequence + 1)
        base_end = self.at(summary.base.end_sequence + 1) if summary.base else None
        new_from = base_end if base_end is not None and start < base_end < end else None
        return Window(summary, is_stuck, start, max(end, start + THINNEST), new_from, lines)


def _lines(shown: Sequence[Summary], scale: _Scale) -> list[list[Line]]:
    """Collect for each row its parts of the lines to bases, which go from a version down to the row of its base."""
    rows = {summary.pk: row for row, summary in enumerate(shown)}
    lines: list[list[Line]] = [[] for _ in shown]
    for row, summary in enumerate(shown):
        if summary.base is None:
            continue
        x = max(scale.at(summary.base.end_sequence + 1), 0)
        base_row = rows.get(summary.base.pk, len(shown))  # of another page: to the bottom
        lines[row].append(Line(x, 50, 100))
        for between in range(row + 1, min(base_row, len(shown))):
            lines[between].append(Line(x, 0, 100))
        if base_row < len(shown):
            lines[base_row].append(Line(x, 0, 50))
    return lines
