"""Text as memory serves it and as it comes back: its lines, in whatever format, and which of them were served.

A line is known by a hash of its words alone: the same memory served as XML, as Markdown or as JSON has the same lines.
That a line was served does not make it the platform's own wherever it stands: people say again what they said before,
and memory quotes them. It is the platform's own where it stands as only the platform writes it: with the date or in the
element of a served line, under a served heading, or among other lines that the platform wrote.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

from moments_app.turns.words import plain_words

TOOLS = ("session_partition", "search_long_term_memory", "get_context", "append_memory")  # whose results are memory
LONG = 20  # bytes of a line that two people hardly write alike by chance
KNOWN = 50_000  # lines
NESTED = 3  # JSON within JSON that is read: a tool's result quotes the answer of another

_TAG = re.compile(r"^\s*</?[A-Z][A-Za-z]*\b[^<>]*>|</[A-Z][A-Za-z]*>\s*$")  # an element of ours, at a line's ends
# A line of memory within an element, or with its date: what nobody writes who only says something again.
_MARK = re.compile(
    r"^\s*<(?:Turn|MemoryShard)\b[^<>]*>"
    r"|[(\[]\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?[)\]]"
    r"|^\W*\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?\b"
)
_NAME = re.compile(
    r"^\W*(?:(?:user|assistant|tool|system)\b[^:\n]{0,80}|\*\*[^*\n]{1,100}\*\*\s*):"
)  # whose line it is
_NUMBER = re.compile(r"^\s*\d+[.)]\s")
_ADDRESS = re.compile(r"rem://\S+")
_IDENTIFIER = re.compile(r"[!-~]*")  # ASCII without a space: no words, but a name, a time, a number


@dataclass(eq=False)
class Line:
    """One line of a text.

    Args:
        text: as it stands there.
        is_neutral: it says nothing by itself: an identifier in JSON.
    """

    text: str
    is_neutral: bool = False

    @cached_property
    def is_marked(self) -> bool:
        """It is written as a line of memory is."""
        return ("-" in self.text or "<" in self.text) and _MARK.search(self.text) is not None

    @cached_property
    def is_frame(self) -> bool:
        """It is a heading, tags alone, or an address."""
        head = self.text.lstrip()[:1]
        return head == "#" or (head == "<" and not _TAG.sub("", self.text).strip()) or self.is_address

    @property
    def is_address(self) -> bool:
        """It is the address of something remembered."""
        return "rem://" in self.text and _ADDRESS.fullmatch(self.text.strip()) is not None

    @cached_property
    def words(self) -> str:
        """Its words, without marks, escapes, date and speaker; of tags alone those of the tags."""
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
        """Of its words; fits a `bigint`."""
        return int.from_bytes(blake2b(self.words.encode(), digest_size=8).digest(), signed=True)


def _words(text: str) -> str:
    text = html.unescape(text) if "&" in text else text
    text = _NAME.sub("", _NUMBER.sub("", text))
    return plain_words(text)


def lines_of(text: str) -> list[Line]:
    """A text's lines; of JSON those of the strings in it."""
    return list(_lines(text, NESTED))


def _lines(text: str, depth: int) -> Iterator[Line]:
    if depth and text.lstrip()[:1] in ("{", "["):
        try:
            strings = list(_strings(json.loads(text)))
        except (ValueError, RecursionError):
            pass  # it only begins like JSON
        else:
            for string in strings:
                if _IDENTIFIER.fullmatch(string):
                    yield Line(string, is_neutral=not _ADDRESS.fullmatch(string))
                else:
                    yield from _lines(string, depth - 1)
            return
    yield from map(Line, text.splitlines())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def served_hashes(texts: Iterable[str], quoted: Iterable[str] = (), asked: str = "") -> dict[int, bool]:
    """The hashes of what is served.

    Args:
        texts: that are served.
        quoted: what stands in them of what was said, word for word.
        asked: the message they are served for: not memory, so none of its lines is among them.

    Returns:
        For each whether it only quotes.
    """
    questions = _hashes([asked])
    quotes = _hashes(quoted)
    return {line: line in quotes for line in _hashes(texts) - questions}


_known: dict[int, int | None] = {}  # what each of many lines came to, by Python's own hash of it; no text is kept


def _hashes(texts: Iterable[str]) -> set[int]:
    """Of the lines of texts; contexts have most of theirs in common with the ones before."""
    if len(_known) > KNOWN:
        _known.clear()
    found = set()
    for line in (line for text in texts for line in _lines(text, NESTED)):
        key = hash((line.text, line.is_neutral))
        if key not in _known:
            _known[key] = None if line.is_blank else line.hash
        found.add(_known[key])
    return {one for one in found if one is not None}


def may_be_own(lines: Sequence[Line]) -> bool:
    """Whether any of them would be the platform's own if all were served: one plain line alone never is."""
    return _is_own(lines, lambda _: True)


def own_places(lines: Sequence[Line], served: Mapping[int, bool]) -> list[int]:
    """The places of the lines that are the platform's own, with blank ones between them.

    Args:
        lines: of a text.
        served: hashes of lines that were served before, and for each whether it only quotes.
    """
    stretches: list[list[int]] = [[]]
    for place, line in enumerate(lines):
        if line.is_blank or line.is_address or line.hash in served:
            stretches[-1].append(place)
        elif stretches[-1]:
            stretches.append([])
    own = [stretch for stretch in stretches if _is_own([lines[n] for n in stretch], lambda line: not served[line.hash])]
    # What a context has behind the message it is for: tags alone.
    frames = [stretch for stretch in stretches if own and all(lines[n].is_blank or lines[n].is_frame for n in stretch)]
    return sorted({place for stretch in own + frames for place in stretch})


def _is_own(stretch: Sequence[Line], is_memory: Callable[[Line], bool]) -> bool:
    """Whether lines that were all served, and follow each other, stand there as the platform writes them."""
    said = [line for line in stretch if not line.is_blank and not line.is_frame]
    is_framed = any(line.is_frame and not line.is_blank for line in stretch)
    plain = (line for line in said if line.is_long and is_memory(line))
    return bool(said) and (is_framed or any(line.is_marked for line in said) or len(list(islice(plain, 2))) > 1)


def without(lines: Sequence[Line], places: Iterable[int]) -> str:
    """The text that is left without the lines at these places."""
    gone = set(places)
    return "\n".join(line.text for place, line in enumerate(lines) if place not in gone and not line.is_neutral).strip()
