"""Split texts into comparable words and into lines, and find their speakers."""

import re
from dataclasses import dataclass

# A mark after a word is part of the word if it changes the meaning, as in C++, C# and the blood groups A+ and AB-.
_WORD = re.compile(r"\w+(?:[+#]+|-(?:(?<=\b\w-)|(?<=\b\w\w-))(?![\w-]))?")
_FINAL_HYPHEN = re.compile(r"-(?<=\w-)(?![\w-])")
_LETTER = re.compile(r"\w")
# A translation table for ASCII: word characters in lower case, and spaces for all others. Mapping bytes is faster than
# mapping texts.
_IN_WORDS = "".join(chr(n).lower() if _LETTER.match(chr(n)) else " " for n in range(128)).encode().ljust(256)
_BETWEEN_WORDS = re.compile(r"[\W_]+")
_DAY = re.compile(r"[\[(]\d{4}-\d\d-\d\d[\])]|\(planned for [^)]{4,40}\)")
_SPEAKER = re.compile(r"\s*([^\W\d_][^:\n]{0,38}):\s")
_SPEAKER_OF_LINE = re.compile(r"^[\s-]*[^\W\d_]+:\s")
NAME_WORDS = 3  # maximum words in a speaker's name
# Names of the assistant in transcripts without speaker names.
_ASSISTANTS = frozenset("assistant assistent asistente assistente asystent ассистент 助手 アシスタント ai bot".split())
# Like `_IN_WORDS`, but an underscore ends a word.
_IN_PLAIN_WORDS = "".join(chr(n).lower() if chr(n).isalnum() else " " for n in range(128)).encode().ljust(256)
LIST_MARK = "- "  # the marker of a list item

_SENTENCE_END = re.compile(r"(?:(?<=[.!?])(?=\s)|(?<=[。！？]))(\s*)")


def words_of(text: str) -> list[str]:
    """Return the case-folded words of a text, in order."""
    has_mark = "+" in text or "#" in text or ("-" in text and _FINAL_HYPHEN.search(text))
    if text.isascii() and not has_mark:  # five times faster than the pattern
        return text.encode().translate(_IN_WORDS).decode().split()
    return _WORD.findall(text.casefold().replace("−", "-"))


def without_marks(word: str) -> str:
    return word.rstrip("+#-")


def plain_words(text: str) -> str:
    """Return the case-folded words of a text, separated by single spaces. An underscore ends a word."""
    if text.isascii():
        return " ".join(text.encode().translate(_IN_PLAIN_WORDS).decode().split())
    return _BETWEEN_WORDS.sub(" ", text).strip().casefold()


def without_dates(line: str) -> str:
    return _DAY.sub(" ", line)


def undated_words(line: str) -> str:
    """Return the words of a memory line without its dates.

    Each word has a space on both sides, so that `in` finds only whole words.
    """
    return f" {' '.join(words_of(without_dates(line).replace('_', ' ')))} "


def speaker_of(content: str) -> str:
    """Return the name in front of a text, as in "Nora: …", or an empty string."""
    match = _SPEAKER.match(content)
    return match[1] if match and len(match[1].split()) <= NAME_WORDS else ""


def is_from_assistant(role: str, speaker: str) -> bool:
    """Return whether a turn is from an assistant.

    An assistant turn that starts with a person's name is from that person.
    """
    return role == "assistant" and (speaker or "assistant").casefold() in _ASSISTANTS


def without_speaker(line: str) -> str:
    return _SPEAKER_OF_LINE.sub("", line)


@dataclass(frozen=True)
class Line:
    """A list item with the heading of its list, or a sentence. The heading may be blank."""

    text: str
    heading: str = ""


def memory_lines(text: str) -> list[Line]:
    """Split a text into list items with their headings, and sentences."""
    lines: list[Line] = []
    heading = ""
    rows = [row.rstrip() for row in text.split("\n") if row.strip()]
    for number, row in enumerate(rows):
        following = rows[number + 1] if number + 1 < len(rows) else ""
        if row.startswith(LIST_MARK):
            lines.append(Line(row, heading))
        elif row.endswith(":") and following.startswith(LIST_MARK):
            heading = row
        else:
            heading = ""
            lines += [Line(sentence) for sentence in _SENTENCE_END.split(row)[::2] if sentence]
    return lines
