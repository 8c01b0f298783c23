"""Estimated token counts: a pure function of the text, for no tokenizer works without its tables."""

import json
from typing import Any

ASCII_CHARS_PER_TOKEN = 4
WIDE_TOKENS_PER_CHAR = 1


def estimate_tokens(text: str, payload: Any = None) -> int:
    """Tokens of a message, rounded up.

    Args:
        text: its content.
        payload: its structured content, counted as the JSON it is sent as.

    Returns:
        A quarter of the ASCII characters plus one for each other character.
    """
    if payload is not None:
        text += json.dumps(payload, ensure_ascii=False)
    wide = 0 if text.isascii() else sum(map("\x7f".__lt__, text))
    return -(-(len(text) - wide) // ASCII_CHARS_PER_TOKEN) + wide * WIDE_TOKENS_PER_CHAR
