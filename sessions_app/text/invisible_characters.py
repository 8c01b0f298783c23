"""Invisible characters, which can hide instructions to models.

Messages are stored unchanged. Texts for models don't contain invisible characters, and operators' pages make them
visible. Joiners, directional marks and variation selectors are kept, because scripts and emoji need them, but only one
in a row. The tags of a flag emoji are also kept.
"""

import re
from typing import Any

_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f"
_TAGS = "[\U000e0000-\U000e007f]+"
# Zero-width characters that no script needs, directional embeddings and overrides, and annotations.
_NEVER = "[\u00ad\u200b\u202a-\u202e\u2060-\u2069\u206a-\u206f\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a]"
_SECOND = "(?<=[\u200c\u200d\u200e\u200f\u061c])[\u200c\u200d\u200e\u200f\u061c]+"
_SELECTORS = "(?<=[\ufe00-\ufe0f\U000e0100-\U000e01ef])[\ufe00-\ufe0f\U000e0100-\U000e01ef]+"
_INVISIBLE = re.compile(f"(?P<flag>{_FLAG})|(?P<tags>{_TAGS})|{_NEVER}|{_SECOND}|{_SELECTORS}")
_TAG = 0xE0000


def without_invisible(text: str) -> str:
    return text if text.isascii() else _INVISIBLE.sub(lambda found: found["flag"] or "", text)


def json_without_invisible(value: Any) -> Any:
    """Remove invisible characters from all texts in a JSON value."""
    if isinstance(value, dict):
        return {name: json_without_invisible(part) for name, part in value.items()}
    if isinstance(value, list):
        return [json_without_invisible(part) for part in value]
    return without_invisible(value) if isinstance(value, str) else value


def has_invisible(text: str) -> bool:
    return without_invisible(text) != text


def with_invisible_shown(text: str) -> str:
    return text if text.isascii() else _INVISIBLE.sub(_visible_form, text)


def _visible_form(found: re.Match[str]) -> str:
    if found["flag"]:
        return found["flag"]
    if found["tags"]:
        hidden = "".join(chr(ord(sign) - _TAG) for sign in found["tags"])
        return f"⟦hidden: {''.join(sign if sign.isprintable() else '·' for sign in hidden)}⟧"
    return "".join(f"⟦U+{ord(sign):04X}⟧" for sign in found[0])
