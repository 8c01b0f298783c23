"""Estimated token counts: a pure function of the text, because real tokenizers need their tables.

The estimate is a weighted count of the pieces into which tokenizers split a text: words, long words, digits, marks,
characters of other scripts. The weights were fitted to the greater count of two real tokenizers (OpenAI's `cl100k_base`
and `o200k_base`) over prose in several languages, code and JSON; `python -m benchmarks.tokens` measures how well they
do (docs/benchmarks.md). The estimate of a text never exceeds the sum of the estimates of its lines, so a limit can be
checked line by line.
"""

import json
import math
import re
from typing import Any

_LETTERS = "A-Za-z\u00c0-\u024f"

_ANY: list[tuple[float, re.Pattern[str]]] = [
    (1.02, re.compile(f"[{_LETTERS}]+")),
    (3.1, re.compile(f"[{_LETTERS}]{{9}}")),  # long words are split into several tokens
    (1.4, re.compile("[a-z][A-Z]")),  # camelCase, base64
    (0.75, re.compile("[A-Z]{3}")),
    (1.5, re.compile(r"\d{1,3}")),
    (0.5, re.compile(r"[!-/:-@\[-`{-~]")),
    (1.4, re.compile("\n+")),
    (0.8, re.compile("[\t\r]")),
    (1.0, re.compile(" {16}")),
]
_NOT_ASCII: list[tuple[float, re.Pattern[str]]] = [
    (1.7, re.compile("[\u00c0-\u024f]")),  # Latin letters with marks
    (0.85, re.compile("[\u0250-\u08ff]")),  # Greek, Cyrillic, Hebrew, Arabic
    (1.25, re.compile("[\u0900-\u1fff\u2e80-\ud7af\uf900-\ufaff\uff00-\uffef]")),  # India to Korea
    (2.0, re.compile("[\u0080-\u00bf\u2000-\u2e7f\ud7b0-\uf8ff\ufb00-\ufeff\U00010000-\U0010ffff]")),  # signs, emoji
]
_CONTROL = 1.0, re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def estimate_tokens(text: str, payload: Any = None) -> int:
    """Estimate the tokens of a message, rounded up.

    Args:
        text: The content.
        payload: The structured content, counted as the JSON that is sent.

    Returns:
        The estimate; 0 for a blank text.
    """
    if payload is not None:
        text += "\n" + json.dumps(payload, ensure_ascii=False)
    classes = [*_ANY, _CONTROL] if text.isascii() else [*_ANY, _CONTROL, *_NOT_ASCII]
    # Rounded first, because sums of such weights are not exact in binary.
    return math.ceil(round(sum(weight * len(pattern.findall(text)) for weight, pattern in classes), 6))
