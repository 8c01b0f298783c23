"""One line of a context, its source, and its token counts."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, tzinfo
from typing import Any, Protocol, Self

from django.utils.functional import cached_property

from moments_app.engines.words import undated_words, words_of
from moments_app.models.atom import ATOMS, ENTITIES
from sessions_app.text.invisible_characters import has_invisible, without_invisible

MAX_CUTS = 10  # maximum cached cuts per item; a binary search for the longest one that fits needs about six
# The share of a fact's words that a turn must contain to count as the same. It is less than 1, because a fact in the
# third person uses some other words than the turn.
MIN_WORD_SHARE = 0.75

_KIND = re.compile(r"^\[\w+\] ")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


@dataclass
class Item:
    """A line of memory.

    Items are never changed. The class isn't frozen because that would make construction three times slower.
    """

    text: str  # without invisible characters; each output format escapes the text
    ref: str = ""  # a `rem://` address; blank if the item is not memory, such as the query
    # sequence numbers of the first and the last source turn, in their session
    source_sequences: tuple[int, int] | None = None
    time: datetime | None = None  # time of the message or statement, with a time zone
    zone: tzinfo = UTC  # the person's time zone, if the time is shown
    name: str = ""  # name of the shard
    role: str = ""
    speaker: str = ""  # speaker of a turn, if the application names speakers
    tool: str = ""
    calls: tuple[dict[str, object], ...] = ()  # tool calls of an assistant turn, in OpenAI's format
    call_id: str = ""  # id of the call whose result the turn contains
    joined: bool = False  # whether it belongs to the previous item, and is left out together with it
    why: str = ""  # reason for including it, for operators; blank if the layer explains it
    score: float = 1.0  # score of a search result; 0 for an older live turn
    is_certain: bool = False  # whether it is always included if it fits into the budget
    is_neighbor: bool = False  # whether it is included only because an adjacent turn was found
    is_of_span: bool = False  # whether it is from the time mentioned in the query
    marks: str = ""  # the last part of the text, with corrections and facts that are no longer true
    also: tuple[str, ...] = ()  # addresses of the facts in `marks`
    # cache of the rendered item and its tokens, by format and layer
    written: dict[tuple[type, str], tuple[str, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # cache of beginnings of the item with their tokens, by format, layer and length
    cuts: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shown = f"{self.text} {self.name} {self.tool} {self.speaker}"
        if shown.isascii() or not has_invisible(shown):
            return
        for name in ("text", "name", "tool", "speaker", "marks"):
            setattr(self, name, without_invisible(getattr(self, name)))

    def marked(self, *, why: str, score: float, is_certain: bool) -> Self:
        """Return a copy with another reason, score and certainty. The copy shares the data computed from the text."""
        item = object.__new__(type(self))
        item.__dict__.update(self.__dict__, why=why, score=score, is_certain=is_certain)
        return item

    @property
    def refs(self) -> list[str]:
        """The addresses of the item and of the facts in its marks."""
        return [self.ref, *self.also] if self.ref else []

    @cached_property
    def local_time(self) -> datetime | None:
        return self.time and self.time.astimezone(self.zone)

    @cached_property
    def local_day(self) -> date | None:
        return self.local_time and self.local_time.date()

    @cached_property
    def words(self) -> list[str]:
        return words_of(self.text)

    @cached_property
    def word_set(self) -> frozenset[str]:
        return frozenset(self.words)

    @cached_property
    def unmarked_words(self) -> str:
        """The words of the text without its marks, separated by spaces."""
        return " ".join(words_of(self.text.removesuffix(self.marks)) if self.marks else self.words)

    @cached_property
    def statement_words(self) -> str:
        """The words of the text separated by spaces, without its day, and without the kind of a task or goal."""
        return undated_words(_KIND.sub("", self.text) if self.ref.startswith(ENTITIES) else self.text)


# --- items and their token counts in a format: alone, joined, cut, and under day headings ---

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
        day, is_of_span = item.local_day, item.is_of_span
        if day is None or (is_of_span, day) in self._days:
            return 0
        has_year = (is_of_span, day.year) in self._years
        return self._form.day_tokens(day) + (0 if has_year else self._form.year_tokens(day))

    def add(self, item: Item) -> None:
        if day := item.local_day:
            self._days.add((item.is_of_span, day))
            self._years.add((item.is_of_span, day.year))


class IncludedContent:
    def __init__(self, sent: Iterable[str]) -> None:
        self._refs: set[str] = set()
        self._statements: set[str] = set()  # the words of facts and lines
        self._entities: set[str] = set()  # the words of tasks, goals and problems
        self._texts = {" ".join(words_of(without_invisible(text))) for text in sent}
        self._words: set[str] = set()
        self._turns: dict[date, list[Item]] = defaultdict(list)  # by day

    def add(self, item: Item) -> None:
        if item.role and item.time:
            self._turns[item.time.date()].append(item)
        if item.ref:
            self._refs.add(item.ref)
        if item.ref.startswith(ENTITIES):
            self._refs.add(_address_as_fact(item))
        if not item.role:
            (self._entities if item.ref.startswith(ENTITIES) else self._statements).add(item.statement_words)
        self._texts.add(item.unmarked_words)
        self._words.update(item.words)

    def has(self, item: Item) -> bool:
        """Return whether the context already contains an item's text, ignoring marks.

        For a neighbor, it is enough if the context contains each of its words.
        """
        said = item.unmarked_words
        return (said != "" and said in self._texts) or (item.is_neighbor and self._words.issuperset(said.split()))

    def is_in_turn(self, item: Item) -> bool:
        """Return whether an included turn of the same day has most of the item's words, and all of its numbers."""
        if item.role or item.time is None or not item.words:
            return False
        return any(_has_most_words(turn.word_set, item.word_set) for turn in self._turns.get(item.time.date(), ()))

    def has_address(self, item: Item) -> bool:
        """Return whether an item's address is already included. In some layers, all items have the same address."""
        return item.ref in self._refs

    def has_statement(self, item: Item) -> bool:
        """Return whether the context has the same statement in another form: as an entity, or as a fact or line."""
        if not item.ref.startswith(ENTITIES):
            return bool(self._entities) and item.statement_words in self._entities
        return _address_as_fact(item) in self._refs or item.statement_words in self._statements


def _address_as_fact(item: Item) -> str:
    """Return an item's address; for a task, goal or problem, that of the fact in which it is stored."""
    return item.ref.replace(ENTITIES, ATOMS, 1)


def _has_most_words(turn: frozenset[str], own: frozenset[str]) -> bool:
    new = own - turn
    return len(new) <= (1 - MIN_WORD_SHARE) * len(own) and not any(word[0].isdigit() for word in new)
