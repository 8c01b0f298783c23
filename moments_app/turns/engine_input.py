"""Convert messages to the input of an engine."""

import json
from datetime import tzinfo

from moments_app.engines.transcript import Turn
from moments_app.turns.tool_pairs import tool_calls
from sessions_app.models import Message
from sessions_app.text.shorten import shorten_middle
from sessions_app.text.tokens import estimate_tokens

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
