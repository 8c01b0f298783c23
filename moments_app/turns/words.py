"""The words of a text as memory compares them, and who speaks in it."""

import re
from collections.abc import Set as AbstractSet

from moments_app.engines.words import words_of

_BETWEEN_WORDS = re.compile(r"[\W_]+")
_DAY = re.compile(r"[\[(]\d{4}-\d\d-\d\d[\])]|\(planned for [^)]{4,40}\)")
_SPEAKER = re.compile(r"\s*([^\W\d_][^:\n]{0,38}):\s")
_SPEAKER_OF_LINE = re.compile(r"^[\s-]*[^\W\d_]+:\s")
NAME_WORDS = 3  # at most
# What transcripts call an assistant that has no name.
_ASSISTANTS = frozenset("assistant assistent asistente assistente asystent ассистент 助手 アシスタント ai bot".split())
# What becomes of each character of ASCII: a small letter, itself, or a space where it belongs to no word.
_IN_PLAIN_WORDS = {number: chr(number).lower() if chr(number).isalnum() else " " for number in range(128)}


def plain_words(text: str) -> str:
    """Return the words of a text with single spaces between them, whatever their case; an underscore ends a word."""
    if text.isascii():
        return " ".join(text.translate(_IN_PLAIN_WORDS).split())
    return _BETWEEN_WORDS.sub(" ", text).strip().casefold()


def without_day(line: str) -> str:
    """Return a line of memory without the day in it."""
    return _DAY.sub(" ", line)


def told_words(line: str) -> str:
    """Return the words of a line of memory between spaces, without its day: one is found in another by whole words."""
    return f" {' '.join(words_of(without_day(line).replace('_', ' ')))} "


def speaker_of(content: str) -> str:
    """Return who speaks in a turn that begins with a name and a colon; blank in any other."""
    match = _SPEAKER.match(content)
    return match[1] if match and len(match[1].split()) <= NAME_WORDS else ""


def is_named(content: str, words: AbstractSet[str]) -> bool:
    """Tell whether a turn's speaker is among the words of a query."""
    speaker = speaker_of(content)
    return bool(speaker) and not words.isdisjoint(words_of(speaker))


def is_assistants(role: str, content: str) -> bool:
    """Tell whether a turn is an assistant's; one under the name of a person is that person's."""
    return role == "assistant" and (speaker_of(content) or "assistant").casefold() in _ASSISTANTS


def without_speaker(line: str) -> str:
    """Return a line of memory without the mark of its list and the one name in front of it."""
    return _SPEAKER_OF_LINE.sub("", line)
