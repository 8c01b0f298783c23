"""Find where a conversation changes its subject or pauses.

Vocabulary: TextTiling (Hearst 1997, https://aclanthology.org/J97-1003) compares the words before and after a gap, and
measures how deep a valley of similarity the gap is. Time: a pause much longer than usual is always a boundary.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median, pstdev

from moments_app.engines.transcript import Turn

BLOCK = 6  # turns compared on each side of a gap
SMALLEST = 10  # minimum turns of a segment, unless pauses separate it
LARGEST = 40
MOST = 200  # maximum segments of a window; an answer can't have more moments
PAUSE_LEAST = 1_800.0  # seconds
PAUSE_FACTOR = 10  # times the usual gap
LONE_TURNS = 3  # fewer turns between two pauses join the adjacent part


def segment(turns: Sequence[Turn], vocabulary: Sequence[Sequence[str]]) -> list[range]:
    """Divide a window into segments that cover it.

    Args:
        turns: the window, at least one turn.
        vocabulary: the content words of each turn.

    Returns:
        Consecutive ranges of positions. None starts with a tool result, unless the window does.
    """
    starts = [0]
    for sitting in _sittings(turns):
        starts += [sitting.start] if sitting.start else []
        starts += _topic_starts(sitting, turns, vocabulary)
    starts = _longest_pauses(starts, turns)
    ends = [*starts[1:], len(turns)]
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def _longest_pauses(starts: list[int], turns: Sequence[Turn]) -> list[int]:
    """Return the starts; if there are too many, those after the longest pauses."""
    if len(starts) <= MOST:
        return starts
    ranked = sorted(starts[1:], key=lambda n: turns[n - 1].created_at - turns[n].created_at)
    return [0, *sorted(ranked[: MOST - 1])]


def _sittings(turns: Sequence[Turn]) -> list[range]:
    """Return the ranges between long pauses."""
    gaps = [(after.created_at - before.created_at).total_seconds() for before, after in pairwise(turns)]
    pause = max(PAUSE_LEAST, median(gaps or [0.0]) * PAUSE_FACTOR)
    starts = [0]
    for position, gap in enumerate(gaps, 1):
        if gap >= pause and turns[position].role != "tool" and position - starts[-1] >= LONE_TURNS:
            starts.append(position)
    if len(starts) > 1 and len(turns) - starts[-1] < LONE_TURNS:
        starts.pop()
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(turns)], strict=True)]


def _topic_starts(sitting: range, turns: Sequence[Turn], vocabulary: Sequence[Sequence[str]]) -> list[int]:
    """Return where a subject starts within a sitting: at the deepest valleys, with a minimum distance."""
    candidates = [n for n in sitting[SMALLEST : -SMALLEST + 1 or None] if turns[n].role == "user"]
    depths = _depths([_similarity(vocabulary, n, sitting) for n in sitting[1:]])
    depth = {n: depths[n - sitting.start - 1] for n in candidates}
    if not depth:
        return []
    # Hearst's stricter cut: valleys that are one standard deviation deeper than usual.
    cut = mean(depth.values()) + pstdev(depth.values())
    chosen: list[int] = []
    for n in sorted(depth, key=lambda n: (-depth[n], n)):
        before, after = _around(n, chosen, sitting)
        size = after - before
        apart = n - before >= SMALLEST and after - n >= SMALLEST
        if apart and (size > LARGEST or (depth[n] > cut and depth[n] > 0 and size >= 2 * SMALLEST)):
            insort(chosen, n)
    return chosen


def _around(position: int, chosen: Sequence[int], sitting: range) -> tuple[int, int]:
    """Return the boundaries before and after a position. `chosen` is sorted."""
    place = bisect_left(chosen, position)
    before = chosen[place - 1] if place else sitting.start
    after = chosen[place] if place < len(chosen) else sitting.stop
    return before, after


def _similarity(vocabulary: Sequence[Sequence[str]], gap: int, sitting: range) -> float:
    """Return the cosine of the word counts of the blocks before and after a gap, from 0 to 1."""
    before = _counts(vocabulary[max(sitting.start, gap - BLOCK) : gap])
    after = _counts(vocabulary[gap : min(sitting.stop, gap + BLOCK)])
    norm = math.sqrt(sum(n * n for n in before.values()) * sum(n * n for n in after.values()))
    return sum(count * after[word] for word, count in before.items()) / norm if norm else 0.0


def _counts(block: Sequence[Sequence[str]]) -> Counter[str]:
    # Prevent a long turn from outweighing its neighbors.
    return Counter(word for turn in block for word in turn[:200])


def _depths(similarity: Sequence[float]) -> list[float]:
    """Return for each gap how far the similarity rises on both sides before it falls again."""
    before, after = _peaks(similarity), _peaks(similarity[::-1])[::-1]
    return [(left - own) + (right - own) for left, own, right in zip(before, similarity, after, strict=True)]


def _peaks(similarity: Sequence[float]) -> list[float]:
    """Return for each gap the similarity where it stops rising in the direction of the start."""
    peaks: list[float] = []
    for n, own in enumerate(similarity):
        peaks.append(peaks[-1] if n and similarity[n - 1] >= own else own)
    return peaks
