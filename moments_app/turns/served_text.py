"""Recognize the lines of text that memory served when they come back, in any format.

A line is identified by a hash of its words, so the same memory served as XML, Markdown or JSON has the same lines. A
served line is not always the platform's text, because people repeat what they said before, and memory quotes them. It
is the platform's text if it has a form that only the platform writes: with the date or the element of a served line,
under a served heading, or among other lines of the platform.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

from moments_app.turns.words import plain_words
from sessions_app.process_cache import cached_by_hash

# The tools whose results are memory.
MEMORY_TOOLS = ("session_partition", "search_long_term_memory", "get_context", "append_memory")
LONG = 20  # bytes; two people hardly ever write the same line of this length
KNOWN = 50_000  # lines
NESTED = 3  # levels of nested JSON that are read, because a tool's result may quote the answer of another

_TAG = re.compile(r"^\s*</?[A-Z][A-Za-z]*\b[^<>]*>|</[A-Z][A-Za-z]*>\s*$")  # one of our elements, at an end of a line
# A line of memory in an element, or with its date; people don't write this form when they repeat something.
_MARK = re.compile(
    r"^\s*<(?:Turn|MemoryShard)\b[^<>]*>"
    r"|[(\[]\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?[)\]]"
    r"|^\W*\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?\b"
)
# The speaker of a line of memory.
_NAME = re.compile(r"^\W*(?:(?:user|assistant|tool|system)\b[^:\n]{0,80}|\*\*[^*\n]{1,100}\*\*\s*):")
_NUMBER = re.compile(r"^\s*\d+[.)]\s")
_ADDRESS = re.compile(r"rem://\S+")
_IDENTIFIER = re.compile(r"[!-~]*")  # ASCII without a space: a name, a time or a number, but no words


@dataclass(eq=False)
class TextLine:
    """A line of a text.

    Args:
        text: its text.
        is_neutral: whether it means nothing alone, as an identifier in JSON.
    """

    text: str
    is_neutral: bool = False

    @cached_property
    def is_marked(self) -> bool:
        """Whether the line has the form of memory's lines."""
        return ("-" in self.text or "<" in self.text) and _MARK.search(self.text) is not None

    @cached_property
    def is_frame(self) -> bool:
        """Whether the line is a heading, only tags, or an address."""
        head = self.text.lstrip()[:1]
        return head == "#" or (head == "<" and not _TAG.sub("", self.text).strip()) or self.is_address

    @property
    def is_address(self) -> bool:
        """Whether the line is the address of a memory."""
        return "rem://" in self.text and _ADDRESS.fullmatch(self.text.strip()) is not None

    @cached_property
    def words(self) -> str:
        """The words of the line, without marks, escapes, date and speaker. If it has only tags, the tags' words."""
        text = _TAG.sub(" ", self.text) if "<" in self.text else self.text
        return _words(_MARK.sub("", text) if self.is_marked else text) or _words(self.text)

    @property
    def is_long(self) -> bool:
        return len(self.words.encode()) >= LONG

    @property
    def is_blank(self) -> bool:
        return self.is_neutral or not self.words

    @cached_property
    def hash(self) -> int:
        """A hash of the words; fits a `bigint`."""
        return int.from_bytes(blake2b(self.words.encode(), digest_size=8).digest(), signed=True)


def _words(text: str) -> str:
    text = html.unescape(text) if "&" in text else text
    text = _NAME.sub("", _NUMBER.sub("", text))
    return plain_words(text)


def text_lines(text: str) -> list[TextLine]:
    """Return the lines of a text; for JSON, the lines of its strings."""
    return [TextLine(line, is_neutral) for line, is_neutral in _lines(text, NESTED)]


def _lines(text: str, depth: int) -> list[tuple[str, bool]]:
    """Return the lines of a text, and whether each is neutral."""
    if depth and text.lstrip()[:1] in ("{", "["):
        try:
            strings = list(_strings(json.loads(text)))
        except (ValueError, RecursionError):
            pass  # it only starts like JSON
        else:
            return [line for string in strings for line in _lines_within(string, depth - 1)]
    return [(line, False) for line in text.splitlines()]


def _lines_within(string: str, depth: int) -> list[tuple[str, bool]]:
    if _IDENTIFIER.fullmatch(string):
        return [(string, not _ADDRESS.fullmatch(string))]
    return _lines(string, depth)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def served_hashes(texts: Iterable[str], quoted: Iterable[str] = (), query: str = "") -> dict[int, bool]:
    """Return the hashes of the lines of served texts, and whether each only quotes.

    Args:
        texts: the served texts.
        quoted: the messages that they quote, word for word.
        query: the message for which they are served. It is not memory, so its lines are excluded.
    """
    of_query, quotes = _hashes([query]), _hashes(quoted)
    return {line: line in quotes for line in _hashes(texts) - of_query}


def _hashes(texts: Iterable[str]) -> set[int]:
    """Return the hashes of the lines of texts. A context shares most of its lines with previous ones."""
    hashes = {_hash(*pair) for text in texts for pair in _lines(text, NESTED)}
    return {found for found in hashes if found is not None}


@cached_by_hash(KNOWN)
def _hash(text: str, is_neutral: bool) -> int | None:
    """Return the hash of a line; None for a blank one."""
    line = TextLine(text, is_neutral)
    return None if line.is_blank else line.hash


def may_be_platform_text(lines: Sequence[TextLine]) -> bool:
    """Return whether any line would be platform text if all were served. A single plain line never is."""
    if len(lines) == 1 and not (lines[0].is_marked or lines[0].is_frame):
        return False
    return _is_platform_text(lines, lambda _: True)


def platform_places(lines: Sequence[TextLine], served: Mapping[int, bool]) -> list[int]:
    """Return the places of the platform's lines, including blank lines between them.

    Args:
        lines: the lines of a text.
        served: hashes of previously served lines, and whether each only quotes.
    """
    runs: list[list[int]] = [[]]  # of lines that were served
    for place, line in enumerate(lines):
        if line.is_blank or line.is_address or line.hash in served:
            runs[-1].append(place)
        elif runs[-1]:
            runs.append([])
    own = [run for run in runs if _is_platform_text([lines[n] for n in run], lambda line: not served[line.hash])]
    # After the query, a context has only tags.
    frames = [run for run in runs if own and all(lines[n].is_blank or lines[n].is_frame for n in run)]
    return sorted({place for run in own + frames for place in run})


def _is_platform_text(run: Sequence[TextLine], is_memory: Callable[[TextLine], bool]) -> bool:
    """Return whether consecutive served lines have the form in which the platform writes them."""
    is_framed = has_words = False
    plain = 0  # long lines of memory
    for line in run:
        if line.is_blank:
            continue
        is_framed |= line.is_frame
        if not line.is_frame:
            has_words = True
            plain += line.is_long and is_memory(line)
        if has_words and (is_framed or plain > 1 or (not line.is_frame and line.is_marked)):
            return True
    return False


def text_without(lines: Sequence[TextLine], places: Iterable[int]) -> str:
    """Return the text without the lines at these places."""
    gone = set(places)
    return "\n".join(line.text for place, line in enumerate(lines) if place not in gone and not line.is_neutral).strip()
