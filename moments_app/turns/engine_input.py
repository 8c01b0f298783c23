"""Correct messages and convert them to the input of an engine, split it into calls, and find where a round ends.

A round is a person's message, followed by the assistant's tool calls and its answer. A boundary never separates a tool
call from its results.
"""

import copy
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any, Protocol

from django.conf import settings

from moments_app.engines.transcript import Turn
from moments_app.models import CorrectedTurn
from sessions_app.models import Message
from sessions_app.text.length import estimate_tokens, shorten_middle

TOOL_MAX_CHARS = 4_000  # maximum characters of a tool's result, and of a turn's tool calls


def as_corrected(turns: Sequence[Message]) -> list[Message]:
    """Return turns with wrong words replaced, using one query. The turns themselves stay unchanged."""
    marks: dict[tuple[int, int], list[CorrectedTurn]] = defaultdict(list)
    for mark in CorrectedTurn.objects.filter(
        user__in={turn.user_id for turn in turns},
        session__in={turn.session_id for turn in turns},
        sequence__in={turn.sequence for turn in turns},
    ).order_by("pk"):
        marks[mark.session_id, mark.sequence].append(mark)
    return [_with_corrections(turn, marks.get((turn.session_id, turn.sequence), [])) for turn in turns]


def _with_corrections(turn: Message, marks: Sequence[CorrectedTurn]) -> Message:
    if not marks:
        return turn
    read = copy.copy(turn)
    for mark in marks:
        read.content = mark.corrected(read.content)
    return read


def engine_turn(message: Message, max_tokens: int, zone: tzinfo, *, index: int = 0) -> Turn:
    """Return a user, assistant or tool turn as input for an engine. Cut long tool results and long texts.

    The times of turns are in the person's time zone, because relative dates such as "yesterday" depend on it.
    """
    text, calls = _text(message, max_tokens), tool_calls(message.payload)
    shown_calls = shorten_middle(json.dumps(calls, ensure_ascii=False), TOOL_MAX_CHARS) if calls else ""
    return Turn(
        index=index,
        role=message.role,
        content=text,
        created_at=message.created_at.astimezone(zone),
        tool_name=message.tool_name,
        name=message.name,
        tool_calls=shown_calls,
        tokens=estimate_tokens(text + shown_calls),
    )


def _text(message: Message, max_tokens: int) -> str:
    text = message.content
    if message.role == Message.Role.TOOL:
        if not text and message.payload is not None:
            text = json.dumps(message.payload, ensure_ascii=False)
        text = shorten_middle(text, TOOL_MAX_CHARS)
    tokens = estimate_tokens(text)
    return text if tokens <= max_tokens else shorten_middle(text, len(text) * max_tokens // tokens)


def split_turns(turns: Sequence[Message] | Sequence[Turn]) -> list[range]:
    """Split turns into index ranges, one per engine call, within the token limit. Keep tool results with their call."""
    sizes, glued = [turn.tokens for turn in turns], [turn.role == Message.Role.TOOL for turn in turns]
    return split(sizes, settings.MOMENT_BUILDER.max_input_tokens, glued)


def split(sizes: Sequence[int], limit: int, glued: Sequence[bool]) -> list[range]:
    """Split consecutive turns into parts of at most `limit` tokens. A larger turn is a part of its own.

    `glued` turns belong to the previous one, as a tool result does. They are only separated if together they exceed the
    limit.
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
    """Return the end of the longest part that starts at `start` and is within the limit.

    The part has at least one turn, even if this turn exceeds the limit.
    """
    end, total = start + 1, sizes[start]
    while end < len(sizes) and total + sizes[end] <= limit:
        total += sizes[end]
        end += 1
    return end


# --- rounds ---


def ends_round(turn: Message) -> bool:
    """Return whether an assistant's turn ends a round. A tool call doesn't, because its result follows."""
    return turn.role == Message.Role.ASSISTANT and not tool_calls(turn.payload)


def end_of_round(turns: Iterable[Message]) -> int | None:
    return max((turn.sequence for turn in turns if ends_round(turn)), default=None)


class PairedTurn(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def payload(self) -> object: ...


def pair_safe_boundary(turns: Sequence[PairedTurn], boundary: int) -> int:
    """Move a boundary back until it separates no tool call from its results, including results that are still pending.

    Args:
        turns: consecutive turns, oldest first, up to the newest of the session.
        boundary: index of the first turn that stays live, 0..len(turns). The result is another such index.
    """
    calls = _calls(turns)
    boundary = _before_open_calls(turns, boundary)
    for index in range(len(turns) - 1, -1, -1):
        if index >= boundary and turns[index].role == "tool":
            boundary = min(boundary, calls.get(index, index))
    return boundary


def _calls(turns: Sequence[PairedTurn]) -> dict[int, int]:
    """Return, for each tool turn, the index of the assistant turn with its call.

    If no turn has a call with this `tool_call_id`, return the index of the previous assistant turn.
    """
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
    """If the boundary is at the end, move it before the first call that may still get results."""
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
