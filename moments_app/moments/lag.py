"""The arithmetic of a build: the lag, the split into engine calls, and what an engine proposed made to fit.

Pure functions over numbers, so that every rule can be tested without a database.
"""

from collections.abc import Sequence

from memoryproject.conf import MomentBuilderSettings


def lag(conf: MomentBuilderSettings, *, message_count: int, few_but_large: bool = False) -> int:
    """Return how many turns a build leaves live.

    Args:
        conf: of the moment builder.
        message_count: turns in the session.
        few_but_large: the build is due by tokens alone; then only the least number stays.
    """
    return conf.lag_messages if few_but_large else conf.lag(message_count)


def split(sizes: Sequence[int], limit: int, glued: Sequence[bool]) -> list[range]:
    """Cut consecutive turns into parts of at most `limit` tokens.

    Args:
        sizes: tokens of each turn; a larger one makes a part of its own.
        limit: most tokens of a part.
        glued: whether a turn belongs with the one before it, as a tool result does; no cut is made there unless the
            turns that belong together are larger than a part.
    """
    parts: list[range] = []
    start = 0
    while start < len(sizes):
        end = _reach(sizes, limit, start)
        cut = end
        while start < cut < len(sizes) and glued[cut]:
            cut -= 1
        parts.append(range(start, cut if cut > start else end))
        start = parts[-1].stop
    return parts


def _reach(sizes: Sequence[int], limit: int, start: int) -> int:
    """Return the end of the longest part from `start` within the limit, of at least one turn."""
    end, total = start + 1, sizes[start]
    while end < len(sizes) and total + sizes[end] <= limit:
        total += sizes[end]
        end += 1
    return end


def normalised(ranges: Sequence[tuple[int, int]], length: int) -> dict[int, tuple[int, int]]:
    """Make proposed ranges cover a window without gap or overlap.

    Clipped to the window and sorted; of an overlap the earlier range keeps its part; a gap goes to the earlier
    neighbour, one at the front to the first. A range that nothing is left of is dropped.

    Args:
        ranges: inclusive (start, end) indexes as an engine proposed them, in its order.
        length: turns in the window, at least 1.

    Returns:
        For each kept range its position in `ranges`, and the inclusive indexes it has now, in window order; empty
        when no range has a turn of the window.
    """
    last = length - 1
    clipped = sorted((min(max(start, 0), last), min(max(end, 0), last), n) for n, (start, end) in enumerate(ranges))
    starts: list[tuple[int, int]] = []  # (first index, position in `ranges`)
    covered = -1
    for start, end, n in clipped:
        start = max(start, covered + 1)
        if start <= end:
            starts.append((start if starts else 0, n))
            covered = end
    if not starts:
        return {}
    ends = [*(start - 1 for start, _ in starts[1:]), last]
    return {n: (start, end) for (start, n), end in zip(starts, ends, strict=True)}
