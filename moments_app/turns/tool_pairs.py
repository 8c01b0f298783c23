"""Tool calls and their results belong together, so no boundary separates them.

Pure functions over turns, so that every rule can be tested without a database.
"""

from collections.abc import Sequence
from typing import Any, Protocol


class PairedTurn(Protocol):
    """The data of a turn that the rules for tool calls need."""

    @property
    def role(self) -> str: ...
    @property
    def payload(self) -> object: ...


def pair_safe_boundary(turns: Sequence[PairedTurn], boundary: int) -> int:
    """Move a boundary back until no tool call before it has its result after it, or still to come.

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
    """Return for each tool turn the index of its call: by `tool_call_id`, otherwise the previous assistant turn."""
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
    """Move a boundary at the very end before the first call whose results may still come."""
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
    """Return the tool calls in an assistant turn's payload, in the OpenAI shape `{"tool_calls": [{"id": …}]}`."""
    calls = payload.get("tool_calls") if isinstance(payload, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _call_ids(payload: object) -> list[str]:
    return [call["id"] for call in tool_calls(payload) if isinstance(call.get("id"), str)]


def _result_id(payload: object) -> str:
    value = payload.get("tool_call_id") if isinstance(payload, dict) else None
    return value if isinstance(value, str) else ""
