"""Convert messages to the input of an engine, split it into calls, and find where a round ends.

A round is a person's message, and the assistant's actions and answer until its turn is over.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import tzinfo

from django.conf import settings

from moments_app.engines.transcript import Turn
from moments_app.turns.tool_pairs import tool_calls
from sessions_app.models import Message
from sessions_app.text.length import estimate_tokens, shorten_middle

TOOL_MAX_CHARS = 4_000  # of a tool's result, and of its arguments


def engine_turn(message: Message, max_tokens: int, zone: tzinfo, *, index: int = 0) -> Turn:
    """Return a message as input for an engine. Cut it if it is a long tool result or larger than `max_tokens`.

    Args:
        message: a user, assistant or tool turn.
        max_tokens: maximum tokens of its text.
        zone: the person's time zone, which determines the day of "yesterday".
        index: the turn's index in the input.
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
    """Return the places of the turns of each call: by tokens, tool results with their calls."""
    sizes, glued = [turn.tokens for turn in turns], [turn.role == Message.Role.TOOL for turn in turns]
    return split(sizes, settings.MOMENT_BUILDER.max_input_tokens, glued)


def split(sizes: Sequence[int], limit: int, glued: Sequence[bool]) -> list[range]:
    """Split consecutive turns into parts of at most `limit` tokens.

    Args:
        sizes: tokens of each turn; a larger turn is a part of its own.
        limit: maximum tokens of a part.
        glued: whether a turn belongs to the previous one, as a tool result does. Such turns are only split if together
            they exceed a part.
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


# --- rounds ---


def ends_round(turn: Message) -> bool:
    """Return whether an assistant's turn ends a round. A tool call doesn't, because its result follows."""
    return turn.role == Message.Role.ASSISTANT and not tool_calls(turn.payload)


def end_of_round(turns: Iterable[Message]) -> int | None:
    """Return the sequence of the last of these turns that ends a round."""
    return max((turn.sequence for turn in turns if ends_round(turn)), default=None)
