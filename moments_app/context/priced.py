"""Items and their token counts in a format, alone, in groups, cut, and under day headings."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from moments_app.context.item import Item
from moments_app.context.render import Format
from moments_app.engines.words import words_of
from sessions_app.text.invisible_characters import without_unseen

MOST_PRICES = 10  # cached with an item, because finding the longest cut that fits needs about seven prices
TOLD = 0.75  # share of a fact's words that its turn must contain; a statement in the third person has some other words

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


class PricedItem(NamedTuple):
    """An item with its tokens, and the reason for including it."""

    item: Item
    tokens: int
    why: str = ""


class ItemGroup(NamedTuple):
    """A unit that is included whole or not at all: one item, or a tool call with its results.

    Args:
        layer: the name of its layer.
        place: the place of its first item in the layer.
        items: one or more items.
        tokens: the tokens of all items.
    """

    layer: str
    place: int
    items: Sequence[PricedItem]
    tokens: int

    @property
    def first(self) -> Item:
        return self.items[0].item


def group_of_one(layer: str, place: int, priced: PricedItem) -> ItemGroup:
    """Return an item as a group."""
    return ItemGroup(layer, place, (priced,), priced.tokens)


def priced(layer: str, item: Item, form: Format) -> PricedItem:
    """Return an item with its tokens in a layer."""
    return PricedItem(item, form.tokens(layer, item), item.why)


def groups_of(layer: str, items: Sequence[Item], form: Format) -> list[ItemGroup]:
    """Return the items of a layer in priced groups."""
    if any(item.joined for item in items):
        return list(_joined_groups(layer, items, form))
    return [_known_group(layer, place, item, form) for place, item in enumerate(items)]


def _known_group(layer: str, place: int, item: Item, form: Format) -> ItemGroup:
    """Return an item as a group. The group is cached with the item, because the item's place seldom changes."""
    known: ItemGroup | None = item.prices.get((form, layer))
    if known is None or known.place != place:
        known = group_of_one(layer, place, priced(layer, item, form))
        _keep(item, (form, layer), known)
    return known


def _keep(item: Item, key: tuple[object, ...], price: object) -> None:
    if len(item.prices) >= MOST_PRICES:
        item.prices.clear()
    item.prices[key] = price


def _joined_groups(layer: str, items: Sequence[Item], form: Format) -> Iterator[ItemGroup]:
    """Yield items in groups. Some groups have several items."""
    group: list[PricedItem] = []
    cost = 0
    for place, item in enumerate(items):
        if group and not item.joined:
            yield ItemGroup(layer, place - len(group), group, cost)
            group, cost = [], 0
        tokens = form.tokens(layer, item)
        group.append(PricedItem(item, tokens, item.why))
        cost += tokens
    if group:
        yield ItemGroup(layer, len(items) - len(group), group, cost)


def shortened(whole: PricedItem, layer: str, form: Format, room: int) -> PricedItem | None:
    """Return the longest beginning of an item, in whole sentences, that costs at most `room`; None if none fits."""
    ends = [match.start() for match in _SENTENCE_END.finditer(whole.item.text)]
    low, high = 0, len(ends)  # binary search: of the first `low` ends, the last one fits
    best: PricedItem | None = None
    while low < high:
        middle = (low + high) // 2
        cut = _cut(whole.item, ends[middle], layer, form)
        if cut.tokens <= room and cut.item.text:
            best, low = cut, middle + 1
        else:
            high = middle
    return best


def _cut(item: Item, end: int, layer: str, form: Format) -> PricedItem:
    """Return the beginning of an item. It is cached with the item, because other contexts cut it at the same places."""
    known: PricedItem | None = item.prices.get((form, layer, end))
    if known is None:
        beginning = replace(item, text=item.text[:end].rstrip())
        known = PricedItem(beginning, form.tokens(layer, beginning), "cut at a sentence")
        _keep(item, (form, layer, end), known)
    return known


class DayHeadings:
    """The day headings over recalled items, each once.

    The year is added to the first day of each year, and after a span.

    The items of the time that the query names precede all others.
    """

    def __init__(self, form: Format) -> None:
        self._form = form
        self._days: set[tuple[bool, date]] = set()
        self._years: set[tuple[bool, int]] = set()

    def cost(self, day: date, *, is_of_span: bool) -> int:
        """Return the tokens of the heading that an item of this day would add."""
        if (is_of_span, day) in self._days:
            return 0
        has_year = (is_of_span, day.year) in self._years
        return self._form.day_tokens(day) + (0 if has_year else self._form.year_tokens(day))

    def add(self, day: date, *, is_of_span: bool) -> None:
        """Record that a day has its heading."""
        self._days.add((is_of_span, day))
        self._years.add((is_of_span, day.year))


def _says(turn: frozenset[str], own: frozenset[str]) -> bool:
    new = own - turn
    return len(new) <= (1 - TOLD) * len(own) and not any(word[0].isdigit() for word in new)


def _said(item: Item) -> tuple[str, ...]:
    """Return the words of an item without its marks."""
    return tuple(words_of(item.text.removesuffix(item.marks))) if item.marks else item.words


class SaidAlready:
    """The content of a context so far: addresses, whole texts, and words."""

    def __init__(self, sent: Iterable[str]) -> None:
        self._refs: set[str] = set()
        self._texts = {tuple(words_of(without_unseen(text))) for text in sent}
        self._words: set[str] = set()
        self._turns: dict[date, list[frozenset[str]]] = defaultdict(list)  # the words of each turn, by its day

    def add(self, item: Item) -> None:
        """Record an included item."""
        if item.role and item.time:
            self._turns[item.time.date()].append(item.word_set)
        if item.ref:
            self._refs.add(item.ref)
        self._texts.add(_said(item))
        self._words.update(item.word_set)

    def has(self, item: Item) -> bool:
        """Return whether an item repeats included text. A neighbor is a repetition if each of its words is included.

        The marks of a turn don't count.
        """
        words = _said(item)
        return (bool(words) and words in self._texts) or (item.is_neighbour and self._words.issuperset(words))

    def is_told(self, item: Item) -> bool:
        """Return whether a turn of the same day has most of the item's words, and all of its dates and numbers."""
        if item.role or item.time is None or not item.words:
            return False
        return any(_says(turn, item.word_set) for turn in self._turns.get(item.time.date(), ()))

    def has_address(self, item: Item) -> bool:
        """Return whether an item's address is included. Some layers have one address for all of their items."""
        return item.ref in self._refs
