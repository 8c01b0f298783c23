"""Items and their prices in a format: alone, in groups, shortened, under headings of days; and what is said already."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from moments_app.context.item import Item
from moments_app.context.render import Format
from moments_app.engines.words import words_of
from sessions_app.unseen import without_unseen

MOST_PRICES = 10  # kept with an item: some seven cuts find the longest that fits, and contexts of a session are alike
TOLD = 0.75  # share of a fact's words that its turn has: what is told in the third person has some others

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


class PricedItem(NamedTuple):
    """An item with its tokens, and why it is there."""

    item: Item
    tokens: int
    why: str = ""


class ItemGroup(NamedTuple):
    """What is taken whole or not at all: one item, or a call of tools with its results.

    Args:
        layer: its name.
        place: of the first item in its layer.
        items: one or more.
        tokens: of all of them.
    """

    layer: str
    place: int
    items: Sequence[PricedItem]
    tokens: int

    @property
    def first(self) -> Item:
        return self.items[0].item


def group_of_one(layer: str, place: int, priced: PricedItem) -> ItemGroup:
    """Return an item as a group of its own."""
    return ItemGroup(layer, place, (priced,), priced.tokens)


def priced(layer: str, item: Item, form: Format) -> PricedItem:
    """Return an item with the tokens that it takes in a layer."""
    return PricedItem(item, form.tokens(layer, item), item.why)


def groups_of(layer: str, items: Sequence[Item], form: Format) -> list[ItemGroup]:
    """Return the items of a layer in groups, priced."""
    if any(item.joined for item in items):
        return list(_joined_groups(layer, items, form))
    return [_known_group(layer, place, item, form) for place, item in enumerate(items)]


def _known_group(layer: str, place: int, item: Item, form: Format) -> ItemGroup:
    """Return an item as a group of its own; a kept item's is kept, for it stands in the same place as a rule."""
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
    """Yield items in groups, some of which have several."""
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
    """Return the longest beginning of an item, in whole sentences, that costs at most `room`; None when none does."""
    ends = [match.start() for match in _SENTENCE_END.finditer(whole.item.text)]
    low, high = 0, len(ends)  # by halving: of the first `low` ends the last one fits
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
    """Return the beginning of an item; a kept item's are kept, for other contexts cut it at the same places."""
    known: PricedItem | None = item.prices.get((form, layer, end))
    if known is None:
        beginning = replace(item, text=item.text[:end].rstrip())
        known = PricedItem(beginning, form.tokens(layer, beginning), "cut at a sentence")
        _keep(item, (form, layer, end), known)
    return known


class DayHeadings:
    """The days over recalled items, each once. The first day of a year has the year, and so has the first after a span.

    The items of the time that the query names stand before all others.
    """

    def __init__(self, form: Format) -> None:
        self._form = form
        self._days: set[tuple[bool, date]] = set()
        self._years: set[tuple[bool, int]] = set()

    def cost(self, day: date, *, is_of_span: bool) -> int:
        """Return the tokens that one more item of a day takes for its heading."""
        if (is_of_span, day) in self._days:
            return 0
        has_year = (is_of_span, day.year) in self._years
        return self._form.day_tokens(day) + (0 if has_year else self._form.year_tokens(day))

    def add(self, day: date, *, is_of_span: bool) -> None:
        """Note a day that has its heading."""
        self._days.add((is_of_span, day))
        self._years.add((is_of_span, day.year))


def _says(turn: frozenset[str], own: frozenset[str]) -> bool:
    new = own - turn
    return len(new) <= (1 - TOLD) * len(own) and not any(word[0].isdigit() for word in new)


class SaidAlready:
    """What a context says already: addresses, whole texts, and single words."""

    def __init__(self, sent: Iterable[str]) -> None:
        self._refs: set[str] = set()
        self._texts = {tuple(words_of(without_unseen(text))) for text in sent}
        self._words: set[str] = set()
        self._turns: dict[date, list[frozenset[str]]] = defaultdict(list)  # the words of each, by its day

    def add(self, item: Item) -> None:
        """Note an item that goes in."""
        if item.role and item.time:
            self._turns[item.time.date()].append(item.word_set)
        if item.ref:
            self._refs.add(item.ref)
        self._texts.add(item.words)
        self._words.update(item.word_set)

    def has(self, item: Item) -> bool:
        """Tell whether an item adds nothing: the same words stand there, or of a mere neighbour each of its words."""
        return (bool(item.words) and item.words in self._texts) or (
            item.is_neighbour and self._words.issuperset(item.words)
        )

    def is_told(self, item: Item) -> bool:
        """Tell whether a turn of the same day says nearly all that was made of it; a date or number in it is new."""
        if item.role or item.time is None or not item.words:
            return False
        return any(_says(turn, item.word_set) for turn in self._turns.get(item.time.date(), ()))

    def has_address(self, item: Item) -> bool:
        """Tell whether an item's address stands there; some layers have one address for all of their items."""
        return item.ref in self._refs
