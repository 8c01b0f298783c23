"""Render a context and count the tokens of its items.

The formats are XML, Markdown, messages for a chat model, and `json`, which contains only the layers.

In all formats, stored text is escaped, so it can't close a tag, start a heading or impersonate a role.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, lru_cache
from typing import Any, Protocol, Self
from xml.sax.saxutils import escape, quoteattr

from moments_app.context.input import Item
from moments_app.context.layers import LAYERS
from moments_app.engines.words import speaker_of
from sessions_app.models.message import spoken
from sessions_app.process_cache import cached_by_hash
from sessions_app.text.length import estimate_tokens

MAX_CUTS = 10  # maximum cached cuts per item; a binary search for the longest one that fits needs about six
MESSAGE_TOKENS = 4  # tokens of a chat model's markup around each message
CACHED_LINES = 20_000  # maximum lines whose tokens are cached
_ROLES_SAID = ("user", "assistant", "tool")

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~])")
# Line starts that Markdown could read as a list or a heading. Markdown ignores a mark right before a letter or digit:
# "4.95" and "-4" are text.
_LINE_START = re.compile(r"^([^\S\n]*(?=[-+=](?!\w))|[^\S\n]*\d+(?=[.)](?!\S)))", re.MULTILINE)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # names that chat models accept; other names are written before the text
# Everything that a common parser treats as a line break.
_LINE_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


Rendered = str | list[dict[str, Any]]


class Format(Protocol):
    def tokens(self, layer: str, item: Item) -> int:
        """Return the estimated tokens of an item in this format."""

    def wrapping_tokens(self, layer: str) -> int:
        """Return the tokens of a layer's head and tail."""

    def day_tokens(self, day: date) -> int:
        """Return the tokens of the heading for a day of recalled items."""

    def year_tokens(self, day: date) -> int:
        """Return the tokens that the year adds to a day heading. Only the first heading of each year has it."""

    def overhead_tokens(self) -> int:
        """Return the tokens of the wrapping around all layers."""

    def render(self, layers: Mapping[str, Sequence[Item]]) -> Rendered:
        """Return the whole context."""


def _speaker_mark(layer: str, item: Item) -> str:
    """Return the role to write before a recalled turn, or "" if the text already starts with a speaker."""
    return f"{item.role}: " if layer == "retrieved" and item.role and not speaker_of(item.text) else ""


@cached_by_hash(CACHED_LINES)  # the contexts of a person share many lines
def _line_tokens(line: str) -> int:
    return estimate_tokens(f"{line}\n")


@cache
def _tokens_around(head: str, tail: str) -> int:
    return sum(estimate_tokens(f"{part}\n") for part in (head, tail) if part)


@lru_cache(maxsize=1_000)
def _day_tokens(day: date) -> int:
    return estimate_tokens(f"{_day(day)}:\n")


class Lines(ABC):
    """A format of lines: each layer has a head, its items, and a tail."""

    head = tail = ""

    @abstractmethod
    def line(self, layer: str, item: Item) -> str:
        """Return the rendered item, which may contain line breaks."""

    @abstractmethod
    def around(self, layer: str) -> tuple[str, str]:
        """Return the head and the tail of a layer."""

    def tokens(self, layer: str, item: Item) -> int:
        return self._written(layer, item)[1]

    def _written(self, layer: str, item: Item) -> tuple[str, int]:
        """Return the rendered item and its tokens. The result is cached with the item."""
        key = self.__class__, layer
        if key not in item.written:
            line = self.line(layer, item)
            item.written[key] = line, _line_tokens(line)
        return item.written[key]

    def wrapping_tokens(self, layer: str) -> int:
        return _tokens_around(*self.around(layer))

    def day_tokens(self, day: date) -> int:
        return _day_tokens(day)

    def year_tokens(self, day: date) -> int:
        return estimate_tokens(f" {day.year}")

    def overhead_tokens(self) -> int:
        return _tokens_around(self.head, self.tail)

    def render(self, layers: Mapping[str, Sequence[Item]]) -> str:
        lines = [self.head]
        for layer, items in layers.items():
            if items:
                head, tail = self.around(layer)
                lines += [head, *self._lines(layer, items), tail]
        return "\n".join(line for line in [*lines, self.tail] if line)

    def _lines(self, layer: str, items: Sequence[Item]) -> Iterator[str]:
        """Yield the rendered items, with a day heading before the first recalled item of each day."""
        last: date | None = None
        for item in items:
            if layer == "retrieved" and (day := item.local_day) and day != last:
                yield f"{_day(day)}:" if last and last.year == day.year else f"{_day(day)} {day.year}:"
                last = day
            yield self._written(layer, item)[0]


def _day(day: date) -> str:
    return f"{day.day} {day:%B}"


class Xml(Lines):
    """XML elements. Text and attributes are escaped. Characters that XML doesn't allow are replaced."""

    head, tail = "<MemoryContext>", "</MemoryContext>"

    def around(self, layer: str) -> tuple[str, str]:
        tag = LAYERS[layer].tag
        return f"<{tag}>", f"</{tag}>"

    def line(self, layer: str, item: Item) -> str:
        is_printable = item.text.isprintable()
        text = escape(item.text if is_printable else _in_xml(item.text))
        if layer == "collective":
            return f"<MemoryShard name={quoteattr(_in_xml(item.name))}>{text}</MemoryShard>"
        if layer in ("policy", "query", "now", "summary"):
            return text
        if layer != "hot_turns":
            # Indented, so that no line of a text looks like a line of the context.
            return f"- {_speaker_mark(layer, item)}" + (text if is_printable else _LINE_BREAK.sub("\n  ", text))
        said_by = {"name": item.speaker, "tool": item.tool}
        more = "".join(f" {name}={quoteattr(_in_xml(value))}" for name, value in said_by.items() if value)
        return f"<Turn role={quoteattr(item.role)}{more}{_dated(item)}>{text}</Turn>"


def _in_xml(text: str) -> str:
    """Return the text without the unprintable characters that XML doesn't allow. It still needs escaping."""
    return _NOT_XML.sub("\ufffd", text)


def _dated(item: Item) -> str:
    return f' time="{item.local_time:%Y-%m-%d %H:%M}"' if item.time else ""


class Markdown(Lines):
    """Headings and lists. Stored text can't start a line of its own or contain markup."""

    def around(self, layer: str) -> tuple[str, str]:
        return f"## {LAYERS[layer].title}", ""

    def line(self, layer: str, item: Item) -> str:
        text = _MARKDOWN.sub(r"\\\1", item.text)
        text = _LINE_BREAK.sub("\n", text)
        text = _LINE_START.sub(r"\1\\", text).replace("\n", "\n  ")
        if layer != "hot_turns":
            name = _on_one_line(item.name)
            return f"- **{name}**: {text}" if name else f"- {_speaker_mark(layer, item)}{text}"
        said_by = "".join(f" {_on_one_line(name)}" for name in (item.tool, item.speaker) if name)
        return f"- **{item.role}{said_by}** ({item.local_time:%Y-%m-%d %H:%M}): {text}"


def _on_one_line(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _LINE_BREAK.sub(" ", text))


class Messages:
    """Messages for `chat.completions`.

    The messages are: a system message with memory, the turns with their roles, a system message with results for the
    query, and the query. The result of a tool is included only together with its call, because chat models would reject
    it. The layers contain it in any case.
    """

    def __init__(self) -> None:
        self._memory = Xml()

    def tokens(self, layer: str, item: Item) -> int:
        if layer not in ("hot_turns", "query"):
            return self._memory.tokens(layer, item)
        message = _message(item)
        return MESSAGE_TOKENS + estimate_tokens(message["content"] or "", message.get("tool_calls")) if message else 0

    def wrapping_tokens(self, layer: str) -> int:
        return 0 if layer in ("hot_turns", "query") else self._memory.wrapping_tokens(layer)

    def day_tokens(self, day: date) -> int:
        return self._memory.day_tokens(day)

    def year_tokens(self, day: date) -> int:
        return self._memory.year_tokens(day)

    def overhead_tokens(self) -> int:
        return 2 * (MESSAGE_TOKENS + self._memory.overhead_tokens())

    def render(self, layers: Mapping[str, Sequence[Item]]) -> Rendered:
        said = {name: filter(None, map(_message, layers.get(name, ()))) for name in ("hot_turns", "query")}
        memory = {name: items for name, items in layers.items() if name not in said}
        lasting = {name: items for name, items in memory.items() if LAYERS[name].is_static}
        # Layers that change with the query come last, so that providers' prompt caches match the text before them.
        changing = {name: items for name, items in memory.items() if name not in lasting}
        last = [self._system(changing)] if any(changing.values()) else []
        return [self._system(lasting), *said["hot_turns"], *last, *said["query"]]

    def _system(self, layers: Mapping[str, Sequence[Item]]) -> dict[str, Any]:
        return {"role": "system", "content": self._memory.render(layers)}


def _message(item: Item) -> dict[str, Any] | None:
    if item.role not in _ROLES_SAID or (item.role == "tool" and not item.call_id):
        return None
    if item.role == "tool":
        return {"role": "tool", "tool_call_id": item.call_id, "content": item.text}
    is_name = _NAME.fullmatch(item.speaker)
    text = item.text if is_name else spoken(item.speaker, item.text)
    message: dict[str, Any] = {"role": item.role, "content": text} | ({"name": item.speaker} if is_name else {})
    if item.calls:
        message |= {"content": text or None, "tool_calls": list(item.calls)}
    return message


class Json:
    """The format without rendering: the response contains only the layers. An item costs the tokens of its text."""

    def tokens(self, layer: str, item: Item) -> int:
        return estimate_tokens(item.text)

    def wrapping_tokens(self, layer: str) -> int:
        return 0

    def day_tokens(self, day: date) -> int:
        return 0

    def year_tokens(self, day: date) -> int:
        return 0

    def overhead_tokens(self) -> int:
        return 0

    def render(self, layers: Mapping[str, Sequence[Item]]) -> Rendered:
        return ""


FORMATS: dict[str, Format] = {"xml": Xml(), "markdown": Markdown(), "messages": Messages(), "json": Json()}


# --- the tokens of items in a format: alone, joined, cut, and under day headings ---


@dataclass(slots=True)
class PricedItem:
    item: Item
    tokens: int  # tokens of the item without joined items
    why: str
    cost: int  # tokens of the item, its day heading, and its joined items
    # items that are included only together with it, for example the results of a tool call
    joined: list[Self] = field(default_factory=list)


def priced(layer: str, items: Iterable[Item], form: Format) -> list[PricedItem]:
    """Return the items of a layer with their tokens. Joined items become part of the item before them."""
    found: list[PricedItem] = []
    for item in items:
        tokens = form.tokens(layer, item)
        one = PricedItem(item, tokens, item.why, tokens)
        if item.joined and found:
            found[-1].joined.append(one)
            found[-1].cost += tokens
        else:
            found.append(one)
    return found


def shortened(item: Item, layer: str, form: Format, room: int) -> PricedItem | None:
    """Cut an item after the last sentence that fits into `room` tokens. Return None if no sentence fits."""
    ends = [match.start() for match in _SENTENCE_END.finditer(item.text)]
    low, high = 0, len(ends)  # binary search; the first `low` cuts are known to fit
    best: PricedItem | None = None
    while low < high:
        middle = (low + high) // 2
        cut = _cut(item, ends[middle], layer, form)
        if cut.tokens <= room and cut.item.text:
            best, low = cut, middle + 1
        else:
            high = middle
    return best


def _cut(item: Item, end: int, layer: str, form: Format) -> PricedItem:
    """Return the beginning of an item. Cache it, because other contexts cut it at the same place."""
    known: PricedItem | None = item.cuts.get((form, layer, end))
    if known is None:
        if len(item.cuts) >= MAX_CUTS:
            item.cuts.clear()
        beginning = replace(item, text=item.text[:end].rstrip())
        tokens = form.tokens(layer, beginning)
        known = item.cuts[form, layer, end] = PricedItem(beginning, tokens, "cut at a sentence", tokens)
    return known


class DayHeadings:
    """The day headings above recalled items, without repetitions.

    Items from the time mentioned in the query come first, with headings of their own. In each of these two groups, the
    heading of the first day of a year includes the year.
    """

    def __init__(self, form: Format) -> None:
        self._form = form
        self._days: set[tuple[bool, date]] = set()
        self._years: set[tuple[bool, int]] = set()

    def cost(self, item: Item) -> int:
        """Return the tokens of the heading that an item would add."""
        day, is_in_span = item.local_day, item.is_in_span
        if day is None or (is_in_span, day) in self._days:
            return 0
        has_year = (is_in_span, day.year) in self._years
        return self._form.day_tokens(day) + (0 if has_year else self._form.year_tokens(day))

    def add(self, item: Item) -> None:
        if day := item.local_day:
            self._days.add((item.is_in_span, day))
            self._years.add((item.is_in_span, day.year))
