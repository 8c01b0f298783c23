"""Filling the budget of a context: what goes in, in an order that is always the same for the same memory and query.

Everything is counted as it will be written down, line by line with its wrapping, so that the text can't turn out longer
than the sum. The budget is filled, not trimmed:

1. Policy and query, always; then what is certain, such as the newest round.
2. The live window, whole where it fits into half of what is left; else its newest turns.
3. Short standing text: a share of the budget for all of it, a ceiling for each layer, taken in turns, a line of each.
   It doesn't depend on the query, so what stands first stays byte for byte and providers' prompt caches serve it.
4. What recall found, best first, until the budget is full. It has at least half of what was left.
5. Where all of that had room, more standing text, up to the ceilings, and older live turns.

Without recall (`plan=stable`) standing text has all of its ceilings, and live turns what remains.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import zip_longest

from moments_app.context.item import Item
from moments_app.context.layers import ALWAYS
from moments_app.context.render import Format, day_of
from sessions_app.refusals import Refusal

# Most that a layer of standing text may have of the budget, in the order in which they take turns.
CEILINGS = {
    "moments": 0.10,
    "summary": 0.15,
    "user": 0.15,
    "collective": 0.10,
    "entities": 0.10,
    "conversation": 0.10,
}
# All of them together have a share of what a budget has beyond this, while recall has something better: a small budget
# is for what answers the query.
STANDING_SHARE, STANDING_FROM = 0.2, 750
STEP = 32  # turns: a window that can't be whole begins at a multiple, so that it seldom begins elsewhere
NEXT = 5  # of what didn't fit, told to an operator
LEAST_LINE = 10  # tokens
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\w+")


class BudgetTooSmall(Refusal):
    """Policy and query alone need more.

    Args:
        needed: tokens that would do for them.
        applied: the budget.
    """

    code, status = "budget_too_small", 422

    def __init__(self, needed: int, applied: int) -> None:
        super().__init__(f"Policy and query alone need {needed} tokens; the budget is {applied}.")
        self.needed, self.applied = needed, applied


@dataclass(frozen=True)
class Line:
    """An item with what it costs, and why it is there."""

    item: Item
    tokens: int
    why: str = ""


@dataclass(frozen=True)
class Trimmed:
    """What of one layer is not in the context, and the tokens it would have taken; of what recall finds nothing is
    told, for it goes on for as long as there is room.
    """

    layer: str
    count: int
    tokens: int
    reason: str


@dataclass
class Fitted:
    """Layers with what is in them.

    Args:
        form: in which it will be written.
        layers: by name, in order.
        overhead: tokens of the wrapping around all.
        trimmed: what didn't make it.
        next: the best of what a larger budget would hold.
    """

    form: Format
    layers: dict[str, list[Line]]
    overhead: int
    trimmed: list[Trimmed] = field(default_factory=list)
    next: list[Line] = field(default_factory=list)

    def tokens_of(self, name: str) -> int:
        """Of a layer, with its wrapping; an empty one costs nothing."""
        lines = self.layers[name]
        headings = heading_tokens(self.form, {day for line in lines if (day := day_of(name, line.item))})
        return sum(line.tokens for line in lines) + headings + self.form.wrapping_tokens(name) if lines else 0

    @property
    def tokens(self) -> int:
        return self.overhead + sum(map(self.tokens_of, self.layers))


def heading_tokens(form: Format, days: Collection[date]) -> int:
    """Return what the days over recalled lines take, the year standing with the first day of each."""
    years = {day.year: day for day in days}
    return sum(map(form.day_tokens, days)) + sum(map(form.year_tokens, years.values()))


@dataclass(frozen=True)
class Piece:
    """What is taken whole or not at all: one line, or a call of tools with its results.

    Args:
        layer: its name.
        place: of the first line in its layer.
        lines: one or more.
    """

    layer: str
    place: int
    lines: list[Line]

    @property
    def item(self) -> Item:
        return self.lines[0].item

    @property
    def tokens(self) -> int:
        return sum(line.tokens for line in self.lines)


class Said:
    """What a context says already: by address, word for word, and every word of it."""

    def __init__(self, sent: Iterable[str]) -> None:
        self._refs: set[str] = set()
        self._texts = {tuple(_WORD.findall(text.casefold())) for text in sent}
        self._words: set[str] = set()

    def add(self, item: Item) -> None:
        """Note an item that goes in."""
        words = _WORD.findall(item.text.casefold())
        if item.ref:
            self._refs.add(item.ref)
        self._texts.add(tuple(words))
        self._words.update(words)

    def has(self, item: Item, *, by_address: bool = False) -> bool:
        """Whether an item adds nothing: the same words stand there, or of a mere neighbour each of its words does.

        Args:
            item: that may go in.
            by_address: nor does it when its address stands there; some layers have one address for all of their lines.
        """
        words = tuple(_WORD.findall(item.text.casefold()))
        if by_address and item.ref in self._refs:
            return True
        return (bool(words) and words in self._texts) or (item.is_neighbour and self._words.issuperset(words))


def fit(
    layers: Mapping[str, Sequence[Item]],
    form: Format,
    applied: int,
    *,
    is_whole: bool = False,
    recalls: bool = True,
    sent: Iterable[str] = (),
) -> Fitted:
    """Fill a budget.

    Args:
        layers: by name, in order; what recall found best first.
        form: in which it will be written.
        applied: most tokens.
        is_whole: the hot turns are all of the live window.
        recalls: recall has at least half; else standing text and the live window share all.
        sent: texts that the caller gives the model beside the context.

    Raises:
        BudgetTooSmall: what always stands is too large.
    """
    filling = _Filling(layers, form, applied, sent)
    filling.take_what_always_stands()
    if recalls:
        half = filling.left // 2
        filling.take_window(half, is_whole=is_whole)
        pool = min(STANDING_SHARE * (applied - STANDING_FROM), half - filling.tokens_of("hot_turns"))
        filling.take_standing(int(pool))
        if filling.take_recalled():
            filling.take_standing(filling.left)
            filling.take_older_turns()
    else:
        # A summary is another one after each round, and stands before the turns: only where they don't cover it.
        filling.take_standing(filling.left, [name for name in CEILINGS if name != "summary"])
        filling.take_older_turns()
        filling.take_standing(filling.left, ["summary"])
    return filling.fitted()


class _Filling:
    """A budget while it is filled."""

    def __init__(self, layers: Mapping[str, Sequence[Item]], form: Format, applied: int, sent: Iterable[str]) -> None:
        self._form, self._applied = form, applied
        self._pieces = {name: list(_pieces(name, items, form)) for name, items in layers.items() if name != "retrieved"}
        self._recalled = _pieces("retrieved", layers.get("retrieved", ()), form)  # priced as far as they are looked at
        self._following: list[Line] = []  # of them, the best that have no room
        self._taken: dict[str, dict[int, Piece]] = {name: {} for name in layers}  # by their places
        self._said, self._days = Said(sent), set[date]()
        self._passed_over: set[tuple[str, int]] = set()
        self.left = applied - form.overhead_tokens()

    def tokens_of(self, name: str) -> int:
        """What a layer takes so far, without its wrapping."""
        return sum(piece.tokens for piece in self._taken.get(name, {}).values())

    # --- what goes in ---

    def take_what_always_stands(self) -> None:
        """Policy and query, then what is certain.

        Raises:
            BudgetTooSmall: there is no room for policy and query.
        """
        always = [piece for name in ALWAYS for piece in self._pieces.get(name, ())]
        needed = self._applied - self.left + sum(self._cost_in_all(always).values())
        if needed > self._applied:
            raise BudgetTooSmall(needed, self._applied)
        for piece in always:
            self._take(piece, self.left)
        for name in ("now", "hot_turns"):
            for piece in reversed(self._pieces.get(name, ())):
                if piece.item.is_certain:
                    self._take(piece, self.left)

    def take_window(self, room: int, *, is_whole: bool) -> None:
        """The live window where it fits whole, else its newest turns.

        Args:
            room: tokens it may take.
            is_whole: its layer has all of it.
        """
        waiting = [piece for piece in reversed(self._pieces.get("hot_turns", ())) if not self._is_taken(piece)]
        if is_whole and sum(self._cost_in_all(waiting).values()) <= room:
            for piece in waiting:
                self._take(piece, room, why="the live window fits whole")
            return
        for piece in waiting:
            cost = self._cost(piece)
            if not piece.item.worth or not self._take(piece, room):
                return
            room -= cost

    def take_standing(self, room: int, names: Iterable[str] = CEILINGS) -> None:
        """Short standing text, a line of each layer in turn.

        Args:
            room: tokens for all of it.
            names: of the layers.
        """
        end = self.left - room
        waiting = [self._pieces.get(name, []) for name in names]
        for round_ in zip_longest(*waiting):
            for piece in round_:
                if piece and not self._is_taken(piece):
                    self._take_standing(piece, self.left - end)

    def _take_standing(self, piece: Piece, room: int) -> None:
        ceiling = int(CEILINGS[piece.layer] * self._applied) - self._wrapped_tokens(piece.layer)
        if self._is_said(piece):
            self._passed_over.add((piece.layer, piece.place))
        elif not self._take(piece, min(room, ceiling)) and not self._taken[piece.layer]:
            wrapping = self._form.wrapping_tokens(piece.layer)
            if shorter := _shortened(self._form, piece.layer, piece.lines[0], min(room, ceiling) - wrapping):
                self._take(replace(piece, lines=[shorter]), room)

    def take_recalled(self) -> bool:
        """What recall found, best first, as long as there is room; returns whether all of it had."""
        for piece in self._recalled:
            if self.left < LEAST_LINE and len(self._following) >= NEXT:
                break
            if not self._said.has(piece.item, by_address=True) and not self._take(piece, self.left):
                self._following += piece.lines
        return not self._following

    def take_older_turns(self) -> None:
        """Live turns before those taken, the newest first; where not all fit, they begin at a multiple of `STEP`."""
        older: list[Piece] = []
        room = self.left
        for piece in reversed(self._pieces.get("hot_turns", ())):
            if self._is_taken(piece):
                continue
            cost = self._cost(piece) if not older and not self._taken["hot_turns"] else piece.tokens
            if cost > room:
                older = older[: _last_step(older) + 1]
                break
            older.append(piece)
            room -= cost
        for piece in older:
            self._take(piece, self.left)

    # --- how ---

    def _is_taken(self, piece: Piece) -> bool:
        return piece.place in self._taken[piece.layer]

    def _is_said(self, piece: Piece) -> bool:
        """Whether standing text adds nothing: word for word, or as a summary of turns that all stand there."""
        if piece.layer == "summary" and piece.item.source_sequences:
            first, last = piece.item.source_sequences
            turns = {taken.item.source_sequences for taken in self._taken.get("hot_turns", {}).values()}
            return {(number, number) for number in range(first, last + 1)} <= turns
        return self._said.has(piece.item)

    def _wrapped_tokens(self, name: str) -> int:
        return self.tokens_of(name) + (self._form.wrapping_tokens(name) if self._taken[name] else 0)

    def _cost(self, piece: Piece) -> int:
        """Tokens it would take now: with the wrapping of its layer if it is the first, and with its day."""
        wrapping = 0 if self._taken[piece.layer] else self._form.wrapping_tokens(piece.layer)
        day = day_of(piece.layer, piece.item)
        heading = 0
        if day and day not in self._days:
            heading = self._form.day_tokens(day)
            if all(day.year != other.year for other in self._days):
                heading += self._form.year_tokens(day)
        return piece.tokens + wrapping + heading

    def _cost_in_all(self, pieces: Iterable[Piece]) -> dict[str, int]:
        """Tokens that pieces would take together, by layer."""
        costs: dict[str, int] = {}
        for piece in pieces:
            first = piece.layer not in costs
            costs[piece.layer] = costs.get(piece.layer, 0) + (self._cost(piece) if first else piece.tokens)
        return costs

    def _take(self, piece: Piece, room: int, *, why: str = "") -> bool:
        """Take it in if there is room."""
        cost = self._cost(piece)
        if cost > min(room, self.left):
            return False
        self.left -= cost
        if day := day_of(piece.layer, piece.item):
            self._days.add(day)
        if why:
            piece = replace(piece, lines=[replace(line, why=why) for line in piece.lines])
        self._taken[piece.layer][piece.place] = piece
        for line in piece.lines:
            self._said.add(line.item)
        return True

    # --- what came of it ---

    def fitted(self) -> Fitted:
        layers = {name: self._in_order(name) for name in self._taken}
        left_out = {name: self._left_out(name) for name in self._pieces}
        trimmed = [
            Trimmed(name, len(lines), sum(line.tokens for line in lines), _reason(name))
            for name, lines in left_out.items()
            if lines
        ]
        standing = [line for name in CEILINGS for line in left_out.get(name, ())]
        following = [*self._following, *standing][:NEXT]
        return Fitted(self._form, layers, self._form.overhead_tokens(), trimmed, following)

    def _in_order(self, name: str) -> list[Line]:
        """The lines of a layer as they stand: what was recalled by time, all else as the layer has it."""
        pieces = [piece for _place, piece in sorted(self._taken[name].items())]
        if name == "retrieved":
            pieces.sort(key=lambda piece: (piece.item.time or EPOCH, piece.item.source_sequences or (0, 0)))
        return [line for piece in pieces for line in piece.lines]

    def _left_out(self, name: str) -> list[Line]:
        return [
            line
            for piece in self._pieces[name]
            if not self._is_taken(piece) and (name, piece.place) not in self._passed_over
            for line in piece.lines
        ]


def _reason(name: str) -> str:
    return "over its share of the budget" if name in CEILINGS else "no room"


def _pieces(name: str, items: Sequence[Item], form: Format) -> Iterator[Piece]:
    """The items of a layer with what each costs, those together that belong together."""
    lines: list[Line] = []
    for place, item in enumerate(items):
        if lines and not item.joined:
            yield Piece(name, place - len(lines), lines)
            lines = []
        lines = [*lines, Line(item, form.tokens(name, item), item.why)]
    if lines:
        yield Piece(name, len(items) - len(lines), lines)


def _last_step(older: Sequence[Piece]) -> int:
    """Return the place of the last of these turns, which go back in time, at a multiple of `STEP`; −1: none is."""
    sequences = [(piece.item.source_sequences or (1, 1))[0] for piece in older]
    return max((place for place, sequence in enumerate(sequences) if sequence % STEP == 0), default=-1)


def _shortened(form: Format, name: str, line: Line, room: int) -> Line | None:
    """The longest beginning of a line, whole sentences, that costs at most `room`; None when not even one does."""
    ends = [match.start() for match in _SENTENCE_END.finditer(line.item.text)]
    low, high = 0, len(ends)  # by halving: of the first `low` ends the last one fits
    best: Line | None = None
    while low < high:
        middle = (low + high) // 2
        item = replace(line.item, text=line.item.text[: ends[middle]].rstrip())
        cost = form.tokens(name, item)
        if cost <= room and item.text:
            best, low = Line(item, cost, "cut at a sentence"), middle + 1
        else:
            high = middle
    return best
