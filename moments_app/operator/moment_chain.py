"""A person's moments as a timeline: a section of the chain, newest first, with its links, its gaps and its sessions.

A section is found by a moment in it, so that a page costs its own length wherever in the chain it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.utils.timesince import timesince

from moments_app.models import Moment
from moments_app.models.moment import MomentQuerySet

LATER = 8  # moments shown after the open one
EARLIER = 16  # and before it
PAGE = 25
GAP = timedelta(hours=1)
HUES = 8  # colors that tell sessions apart
NODE = 22  # where a row's node is, in pixels from its top


@dataclass(frozen=True)
class Span:
    """A part of a vertical line within a row, as SVG takes it."""

    top: str
    bottom: str


ABOVE, BELOW, THROUGH = Span("0", str(NODE)), Span(str(NODE), "100%"), Span("0", "100%")


@dataclass(frozen=True)
class Step:
    """A row of the timeline.

    Args:
        moment: the moment that the row is of.
        is_open: it is read beside its source turns.
        begins_session: the row above is of another session.
        from_later, to_earlier: the line to the row above, and to that below: there is a link between the moments.
        gap: how long nothing was between this moment and the one below; blank where that isn't long.
        lane: the line of the open moment's links that passes here or ends.
        is_linked: the open moment names this one, or is named by it.
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
    """Some moments that follow each other in a person's chain, newest first.

    Args:
        moments: those shown, and a neighbour at an end behind which there are more.
        first, end: of those shown, as positions.
        opened: the one that is open.
    """

    moments: Sequence[Moment]
    first: int
    end: int
    opened: Moment | None = None

    @property
    def steps(self) -> list[Step]:
        """A row for each moment shown."""
        return [self._step(position) for position in range(self.first, self.end)]

    @property
    def later(self) -> Moment | None:
        """The one shown first, where there are later ones."""
        return self.moments[self.first] if 0 < self.first < self.end else None

    @property
    def earlier(self) -> Moment | None:
        """The one shown last, where there are earlier ones."""
        return self.moments[self.end - 1] if self.first < self.end < len(self.moments) else None

    @property
    def next(self) -> Moment | None:
        """The one after the open one."""
        return self._beside(-1)

    @property
    def previous(self) -> Moment | None:
        """The one before the open one."""
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
        """Positions of those that the open moment names, and of those that name it."""
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
    """Read a moment, open, with those after and before it.

    Args:
        moment: the one that is open.
        until: leaves out what was later; None: nothing.
    """
    later = list(_by(until).later_than(moment)[: LATER + 1])
    earlier = list(_shown().earlier_than(moment)[: EARLIER + 1])
    chain = [*reversed(later), moment, *earlier]
    return ChainSection(chain, max(len(later) - LATER, 0), len(chain) - max(len(earlier) - EARLIER, 0), moment)


def earlier_than(moment: Moment, until: datetime | None = None) -> ChainSection:
    """Read a page of the moments before a moment; what was later than `until` isn't among them."""
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
