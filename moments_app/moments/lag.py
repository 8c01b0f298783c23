"""Which turns a build compacts: the lag, tool calls kept with their results, and the split into engine calls.

Pure functions over turns and numbers, so that every rule can be tested without a database.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from memoryproject.conf import MomentBuilderSettings


class PairedTurn(Protocol):
    """What the rules about tool calls need of a turn."""

    @property
    def role(self) -> str: ...
    @property
    def payload(self) -> object: ...


def lag(conf: MomentBuilderSettings, *, message_count: int, few_but_large: bool = False) -> int:
    """Turns that a build leaves live.

    Args:
        conf: of the moment builder.
        message_count: turns in the session.
        few_but_large: the build is due by tokens alone; then only the least number stays.

    """
    return conf.lag_messages if few_but_large else conf.lag(message_count)


def pair_safe_boundary(turns: Sequence[PairedTurn], boundary: int) -> int:
    """Moves a boundary back until no tool call stands before it whose result stands, or is still to come, after it.

    Args:
        turns: consecutive turns, oldest first, up to the newest of the session.
        boundary: index of the first turn that stays live, 0..len(turns).

    Returns:
        The index, at most `boundary`, of the first turn that stays live.
    """
    calls = _calls(turns)
    boundary = _before_open_calls(turns, boundary)
    for index in range(len(turns) - 1, -1, -1):
        if index >= boundary and turns[index].role == "tool":
            boundary = min(boundary, calls.get(index, index))
    return boundary


def _calls(turns: Sequence[PairedTurn]) -> dict[int, int]:
    """For each tool turn the index of its call: by `tool_call_id`, else the nearest assistant turn before it."""
    by_id: dict[str, int] = {}
    found: dict[int, int] = {}
    nearest = 0
    for index, turn in enumerate(turns):
        if turn.role == "assistant":
            nearest = index
            by_id.update((call_id, index) for call_id in _call_ids(turn.payload))
        elif turn.role == "tool":
            found[index] = by_id.get(_result_id(turn.payload), nearest)
    return found


def _before_open_calls(turns: Sequence[PairedTurn], boundary: int) -> int:
    """Results of calls at the very end may still come: a boundary at the end goes before the first such call."""
    if boundary < len(turns):
        return boundary
    answered: set[str] = set()
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].role == "tool":
            answered.add(_result_id(turns[index].payload))
            continue
        ids = _call_ids(turns[index].payload) if turns[index].role == "assistant" else []
        if not ids:
            break
        if set(ids) - answered:
            boundary = index
    return boundary


def tool_calls(payload: object) -> list[dict[str, Any]]:
    """The tool calls in an assistant turn's payload, in the OpenAI shape `{"tool_calls": [{"id": …}]}`."""
    calls = payload.get("tool_calls") if isinstance(payload, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _call_ids(payload: object) -> list[str]:
    return [call["id"] for call in tool_calls(payload) if isinstance(call.get("id"), str)]


def _result_id(payload: object) -> str:
    value = payload.get("tool_call_id") if isinstance(payload, dict) else None
    return value if isinstance(value, str) else ""


def split(sizes: Sequence[int], limit: int, glued: Sequence[bool]) -> list[range]:
    """Cuts consecutive turns into stretches of at most `limit` tokens.

    Args:
        sizes: tokens of each turn; a larger one makes a stretch of its own.
        limit: most tokens of a stretch.
        glued: whether a turn belongs with the one before it, as a tool result does; no cut is made there unless the
            turns that belong together are larger than a stretch.
    """
    stretches: list[range] = []
    start = 0
    while start < len(sizes):
        end = _reach(sizes, limit, start)
        cut = end
        while start < cut < len(sizes) and glued[cut]:
            cut -= 1
        stretches.append(range(start, cut if cut > start else end))
        start = stretches[-1].stop
    return stretches


def _reach(sizes: Sequence[int], limit: int, start: int) -> int:
    """The end of the longest stretch from `start` within the limit, of at least one turn."""
    end, total = start + 1, sizes[start]
    while end < len(sizes) and total + sizes[end] <= limit:
        total += sizes[end]
        end += 1
    return end


def normalised(ranges: Sequence[tuple[int, int]], length: int) -> dict[int, tuple[int, int]]:
    """Makes proposed ranges cover a window without gap or overlap.

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
