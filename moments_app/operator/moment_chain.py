"""A person's moments as a timeline: a section of the chain, newest first, with its links, gaps and sessions.

A section is found by one of its moments, so a page costs the same anywhere in the chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.utils.timesince import timesince

from moments_app.models import Moment
from moments_app.models.moment import MomentQuerySet

LATER = 8  # moments after the open one
EARLIER = 16  # moments before the open one
PAGE = 25
GAP = timedelta(hours=1)
HUES = 8  # colors that distinguish sessions
NODE = 22  # position of a row's node, in pixels from the top


@dataclass(frozen=True)
class Span:
    """A part of a vertical line within a row, in SVG coordinates."""

    top: str
    bottom: str


ABOVE, BELOW, THROUGH = Span("0", str(NODE)), Span(str(NODE), "100%"), Span("0", "100%")


@dataclass(frozen=True)
class Step:
    """A row of the timeline.

    Args:
        is_open: whether it is shown next to its source turns.
        begins_session: whether the row above has another session.
        from_later, to_earlier: the lines to the rows above and below, if the moments are linked.
        gap: the time between this moment and the one below; blank if it is short.
        lane: the line of the open moment's links that passes or ends here.
        is_linked: whether the open moment names this one, or is named by it.
    """

    moment: Moment
    is_open: bool
    begins_session: bool
    from_later: bool
    to_earlier: bool
    gap: str
    lane: Span | None
    is_linked: bool

    @property
    def hue(self) -> int:
        """The number of its session's color."""
        return (self.moment.source_session_id or 0) % HUES


@dataclass(frozen=True)
class ChainSection:
    """Consecutive moments of a person's chain, newest first.

    Args:
        moments: the shown moments, and one more at each end where more follow.
        first, end: of the shown moments, as positions.
    """

    moments: Sequence[Moment]
    first: int
    end: int
    opened: Moment | None = None

    @property
    def steps(self) -> list[Step]:
        """One row for each shown moment."""
        return [self._step(position) for position in range(self.first, self.end)]

    @property
    def later(self) -> Moment | None:
        """The first shown moment, if there are later ones."""
        return self.moments[self.first] if 0 < self.first < self.end else None

    @property
    def earlier(self) -> Moment | None:
        """The last shown moment, if there are earlier ones."""
        return self.moments[self.end - 1] if self.first < self.end < len(self.moments) else None

    @property
    def next(self) -> Moment | None:
        """The moment after the open one."""
        return self._beside(-1)

    @property
    def previous(self) -> Moment | None:
        """The moment before the open one."""
        return self._beside(1)

    def _beside(self, distance: int) -> Moment | None:
        if self.opened is None:
            return None
        position = self.moments.index(self.opened) + distance
        return self.moments[position] if 0 <= position < len(self.moments) else None

    def _step(self, position: int) -> Step:
        moment = self.moments[position]
        above = self.moments[position - 1] if position else None
        below = self.moments[position + 1] if position + 1 < len(self.moments) else None
        return Step(
            moment=moment,
            is_open=moment == self.opened,
            begins_session=position == self.first or above is None or _is_of_another_session(above, moment),
            from_later=above is not None and moment.key in above.previous_moment_keys,
            to_earlier=below is not None and below.key in moment.previous_moment_keys,
            gap=_gap(below, moment) if below else "",
            lane=self._lane(position),
            is_linked=position in self._linked,
        )

    @cached_property
    def _linked(self) -> set[int]:
        """Positions of moments that the open one names or that name it."""
        if self.opened is None:
            return set()
        named, key = self.opened.previous_moment_keys, self.opened.key
        return {n for n, m in enumerate(self.moments) if m.key in named or key in m.previous_moment_keys}

    def _lane(self, position: int) -> Span | None:
        if self.opened is None or not self._linked:
            return None
        ends = {*self._linked, self.moments.index(self.opened)}
        if not min(ends) <= position <= max(ends):
            return None
        return BELOW if position == min(ends) else ABOVE if position == max(ends) else THROUGH


def around(moment: Moment, until: datetime | None = None) -> ChainSection:
    """Read an open moment and the moments around it.

    Args:
        until: excludes later moments; None: excludes nothing.
    """
    later = list(_by(until).later_than(moment)[: LATER + 1])
    earlier = list(_shown().earlier_than(moment)[: EARLIER + 1])
    chain = [*reversed(later), moment, *earlier]
    return ChainSection(chain, max(len(later) - LATER, 0), len(chain) - max(len(earlier) - EARLIER, 0), moment)


def earlier_than(moment: Moment, until: datetime | None = None) -> ChainSection:
    """Read a page of the moments before a moment, excluding moments later than `until`."""
    chain = [moment, *_shown().earlier_than(moment)[: PAGE + 1]]
    return ChainSection(chain, 1, min(len(chain), PAGE + 1))


def later_than(moment: Moment, until: datetime | None = None) -> ChainSection:
    """Read a page of the moments after a moment, up to `until`."""
    later = list(_by(until).later_than(moment)[: PAGE + 1])
    return ChainSection([*reversed(later), moment], max(len(later) - PAGE, 0), len(later))


def _shown() -> MomentQuerySet:
    return Moment.objects.select_related("source_session").defer("search_vector", "detail")


def _by(until: datetime | None) -> MomentQuerySet:
    return _shown().filter(ends_at__lte=until) if until else _shown()


def _is_of_another_session(above: Moment, moment: Moment) -> bool:
    return above.source_session_id != moment.source_session_id


def _gap(below: Moment, moment: Moment) -> str:
    is_long = moment.starts_at - below.ends_at >= GAP
    return timesince(below.ends_at, moment.starts_at) if is_long else ""
