"""Who speaks in a turn, and whom a query names."""

import re
from collections.abc import Collection

_WORD = re.compile(r"\w+")
_SPEAKER = re.compile(r"\s*([^\W\d_][^:\n]{0,38}):\s")
NAME_WORDS = 3  # at most


def words_of(text: str) -> frozenset[str]:
    """Return the words in a text, whatever their case."""
    return frozenset(_WORD.findall(text.casefold()))


def speaker_of(content: str) -> str:
    """Return who speaks in a turn that begins with a name and a colon; blank in any other."""
    match = _SPEAKER.match(content)
    return match[1] if match and len(match[1].split()) <= NAME_WORDS else ""


def is_named(content: str, words: Collection[str]) -> bool:
    """Tell whether a turn's speaker is among the words of a query."""
    return not words_of(speaker_of(content)).isdisjoint(words)
