"""Fill the budget of a context. The result is deterministic for the same memory and query.

Tokens are counted line by line in the rendered text, including the wrapping. The whole text never has more tokens than
the sum of its lines. The budget is filled in this order:

1. The policy and the query, which are always included. Then items with `is_certain`, for example the newest round.
2. The whole live window if it fits into half of the remaining budget, or else its newest turns.
3. Lines about who the person is, then other short standing text, such as facts. Standing text gets a share of the
   budget, with a ceiling for each layer. The layers take turns, line by line. This text doesn't depend on the query, so
   the beginning of the context stays identical and matches providers' prompt caches.
4. Recall results, best first, until the budget is full. They get at least half of the budget that remains after step 1.
5. If all results fit, more standing text up to the ceilings, and then older live turns.

Without recall (`plan=stable`), standing text is filled up to its ceilings, and live turns get the rest.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import zip_longest

from moments_app.context.input import Item
from moments_app.context.layers import ALWAYS, LAYERS
from moments_app.context.render import DayHeadings, Format, PricedItem, priced, shortened
from moments_app.engines.words import words_of
from moments_app.models.atom import ATOMS, ENTITIES
from sessions_app.refusals import Refusal
from sessions_app.text.invisible_characters import without_invisible

# The share of the tokens above `STANDING_FROM` that all standing text together may use before the search results are
# added. Smaller budgets get standing text only if all search results fit.
STANDING_SHARE, STANDING_FROM = 0.15, 750
# Tokens reserved for lines about the person. Search results would need more tokens for the same information.
IDENTITY_TOKENS = 100
# The maximum of `_step`. A partial window starts at a multiple of its step, so that its start rarely changes.
MAX_STEP = 32
MAX_FOLLOWING = 5  # how many of the items that didn't fit are shown to operators
MIN_LINE = 10  # minimum tokens for which a recall result could still fit
SHORT_LINE = 20  # maximum characters of a short line, which may have another meaning within a longer text
# The share of a fact's words that a turn must contain to count as the same. It is less than 1, because a fact in the
# third person uses some other words than the turn.
MIN_WORD_SHARE = 0.75
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BudgetTooSmall(Refusal):
    """The policy and the query need more tokens than the budget."""

    code, status = "budget_too_small", 422

    def __init__(self, needed: int, applied: int) -> None:
        super().__init__(
            f"max_tokens: the policy and the query need {needed} tokens, but the budget is {applied}. "
            "Shorten the query, or raise max_tokens (at most MEMORY_CONTEXT__MAX_TOKENS)."
        )
        self.needed, self.applied = needed, applied


@dataclass(frozen=True)
class Trimmed:
    """The part of a layer that was left out, with its number of tokens.

    Recall results are not counted, because a search always has more. In the live window, only the turns that were read
    are counted. As many turns are read as would fit into the whole budget.
    """

    layer: str
    count: int
    tokens: int
    reason: str


@dataclass
class FilledBudget:
    layers: dict[str, list[PricedItem]]
    costs: dict[str, int]  # tokens by layer, including wrapping and day headings
    overhead: int  # tokens of the wrapping around all layers
    trimmed: list[Trimmed] = field(default_factory=list)
    next: list[PricedItem] = field(default_factory=list)  # the best items that a larger budget would include

    def tokens_of(self, name: str) -> int:
        """Return the tokens of a layer, including its wrapping."""
        return self.costs[name]

    @property
    def tokens(self) -> int:
        return self.overhead + sum(self.costs.values())


def fill_budget(
    layers: Mapping[str, Iterable[Item]],
    form: Format,
    applied: int,
    *,
    is_whole: bool = False,
    recalls: bool = True,
    sent: Iterable[str] = (),
) -> FilledBudget:
    """Fill a budget.

    Args:
        layers: the items by layer, in order. Recall results are sorted best first.
        applied: the budget in tokens.
        is_whole: whether `hot_turns` contains the whole live window.
        recalls: whether recall gets at least half of the budget. Otherwise, standing text and the live window share it.
        sent: texts that the caller sends to the model in addition to the context.

    Raises:
        BudgetTooSmall: the policy and the query don't fit.
    """
    budget = _Budget(layers, form, applied, sent)
    budget.take_required()
    if recalls:
        half = budget.left // 2
        budget.take_window(half, is_whole=is_whole)
        room = half - budget.tokens_of("hot_turns")
        if applied > STANDING_FROM:
            pool = min(STANDING_SHARE * (applied - STANDING_FROM), room)
            budget.take_identity(min(IDENTITY_TOKENS, room))
            budget.take_standing(int(pool) - budget.tokens_of("user"), standing_layers())
        if budget.take_recalled():
            budget.take_standing(budget.left, standing_layers())
            budget.take_older_turns()
    else:
        # The summary changes after each round and precedes the turns, so it is added last, and only if the included
        # turns don't cover it.
        budget.take_standing(budget.left, [name for name in standing_layers() if name != "summary"])
        budget.take_older_turns()
        budget.take_standing(budget.left, ["summary"])
    return budget.filled()


def standing_layers() -> list[str]:
    """Return the layers with a ceiling, in the order in which they add items."""
    limited = [layer for layer in LAYERS.values() if layer.ceiling]
    return [layer.name for layer in sorted(limited, key=lambda layer: layer.turn)]


class _Layer:
    def __init__(self, name: str, items: Iterable[Item], form: Format, applied: int) -> None:
        self.name, self.items = name, priced(name, items, form)
        self.taken: dict[int, PricedItem] = {}  # by index in `items`
        self.tokens = 0  # tokens of the added items, without the wrapping
        self.wrapping = form.wrapping_tokens(name)
        self.ceiling = int((LAYERS[name].ceiling or 1) * applied)

    @property
    def opening(self) -> int:
        """The tokens of the wrapping if the layer is still empty, because its first item adds them. Otherwise 0."""
        return 0 if self.taken else self.wrapping

    @property
    def all_tokens(self) -> int:
        return self.tokens + self.wrapping if self.taken else 0

    def waiting(self) -> list[tuple[int, PricedItem]]:
        """Return the items that have not been added, with their indexes."""
        return [(place, one) for place, one in enumerate(self.items) if place not in self.taken]

    def in_order(self) -> list[PricedItem]:
        """Return the added items in their final order.

        Recalled items are sorted by time, but items from the time that the query mentions come first.
        """
        taken = [self.taken[place] for place in sorted(self.taken)]
        if self.name == "retrieved":
            taken.sort(key=_chronological_key)
        return _with_joined(taken)


class _Budget:
    def __init__(self, layers: Mapping[str, Iterable[Item]], form: Format, applied: int, sent: Iterable[str]) -> None:
        self._form, self._applied, self._names = form, applied, list(layers)
        self._recalled = layers.get("retrieved", ())  # token counts are computed only for results that may fit
        given = {**layers, "retrieved": ()}
        self._layers = {name: _Layer(name, given.get(name, ()), form, applied) for name in LAYERS}
        self._following: list[PricedItem] = []  # the best recall results that don't fit
        self._included, self._headings = IncludedContent(sent), DayHeadings(form)
        self.left = applied - form.overhead_tokens()

    def tokens_of(self, name: str) -> int:
        return self._layers[name].tokens

    def take_required(self) -> None:
        """Add policy and query, then the certain items. Raise `BudgetTooSmall` if policy and query don't fit."""
        always = [layer for name in ALWAYS if (layer := self._layers[name]).items]
        needed = self._applied - self.left + sum(layer.opening + _cost(layer.items) for layer in always)
        if needed > self._applied:
            raise BudgetTooSmall(needed, self._applied)
        for layer in always:
            for place, one in enumerate(layer.items):
                self._take(layer, place, one, self.left)
        for name in ("now", "hot_turns"):
            layer = self._layers[name]
            for place, one in reversed(layer.waiting()):
                if one.item.is_certain:
                    self._take(layer, place, one, self.left)

    def take_window(self, room: int, *, is_whole: bool) -> None:
        """Add the whole live window if it fits into `room` tokens. Otherwise, add its newest turns."""
        turns = self._layers["hot_turns"]
        waiting = turns.waiting()[::-1]
        if is_whole and turns.opening + _cost(one for _, one in waiting) <= room:
            for place, one in waiting:
                self._take(turns, place, one, room)
            for one in _with_joined(one for _, one in waiting):
                one.why = "the whole live window fits"
            return
        for place, one in waiting:
            cost = turns.opening + one.cost
            if not one.item.score or not self._take(turns, place, one, room):
                return
            room -= cost

    def take_identity(self, room: int) -> None:
        """Add the lines about who the person is, without cutting them, in at most `room` tokens."""
        end = self.left - room
        layer = self._layers["user"]
        for place, one in enumerate(layer.items):
            if one.item.is_certain:
                self._take_standing(layer, place, one, self.left - end, cuts=False)

    def take_standing(self, room: int, names: Iterable[str]) -> None:
        """Add short standing text, up to `room` tokens, one item per layer in turn.

        The first item of a layer may be cut after a sentence.
        """
        end = self.left - room
        layers = [self._layers[name] for name in names]
        for place, round_ in enumerate(zip_longest(*[layer.items for layer in layers])):
            for layer, one in zip(layers, round_, strict=True):
                if one is not None and place not in layer.taken:
                    self._take_standing(layer, place, one, self.left - end, cuts=True)

    def _take_standing(self, layer: _Layer, place: int, one: PricedItem, room: int, *, cuts: bool) -> None:
        most = min(room, layer.ceiling - layer.all_tokens)
        may_cut = cuts and not layer.taken and most > layer.wrapping
        # The costs are checked first, because few items fit into an almost full layer.
        if (one.cost > most and not may_cut) or self._repeats(layer, one.item) or self._take(layer, place, one, most):
            return
        if may_cut and (shorter := shortened(one.item, layer.name, self._form, most - layer.wrapping)):
            self._take(layer, place, shorter, room)

    def take_recalled(self) -> bool:
        """Add the recall results that fit, best first. Return whether all results fit."""
        layer = self._layers["retrieved"]
        for place, item in enumerate(self._recalled):
            if self.left < MIN_LINE and len(self._following) >= MAX_FOLLOWING:
                break
            if self._included.has_address(item) or self._included.has(item) or self._included.is_in_turn(item):
                continue
            tokens = self._form.tokens("retrieved", item)
            one = PricedItem(item, tokens, item.why, tokens + self._headings.cost(item))
            if self._take(layer, place, one, self.left):
                self._headings.add(item)
            else:
                self._following.append(one)
        return not self._following

    def take_older_turns(self) -> None:
        """Add older live turns, newest first.

        If some don't fit, the sequence number of the oldest added turn is a multiple of `_step`.
        """
        turns = self._layers["hot_turns"]
        older: list[tuple[int, PricedItem]] = []
        room = self.left - turns.opening
        for place, one in reversed(turns.waiting()):
            if one.cost > room:
                step = _step(len(turns.taken) + len(older))
                older = older[: _last_step([one.item for _, one in older], step) + 1]
                break
            older.append((place, one))
            room -= one.cost
        for place, one in older:
            self._take(turns, place, one, self.left)

    def _repeats(self, layer: _Layer, item: Item) -> bool:
        """Return whether standing text repeats included text, or is a summary whose turns are all included."""
        if layer.name == "summary" and item.source_sequences:
            first, last = item.source_sequences
            turns = {taken.item.source_sequences for taken in self._layers["hot_turns"].taken.values()}
            return {(number, number) for number in range(first, last + 1)} <= turns
        if self._included.has(item) or self._included.has_statement(item):
            return True
        return layer.name == "conversation" and self._is_in_moments(item)

    def _is_in_moments(self, item: Item) -> bool:
        """Return whether an included checkpoint or moment contains the line word for word, unless the line is short."""
        moments = self._layers["moments"].taken.values()
        return len(item.statement_words) > SHORT_LINE and any(
            item.statement_words in moment.item.statement_words for moment in moments
        )

    def _take(self, layer: _Layer, place: int, one: PricedItem, room: int) -> bool:
        """Add an item and its joined items if they fit. Return whether they did."""
        cost = layer.opening + one.cost
        if cost > room or cost > self.left:
            return False
        self.left -= cost
        layer.tokens += one.cost
        layer.taken[place] = one
        for part in (one, *one.joined):
            self._included.add(part.item)
        return True

    def filled(self) -> FilledBudget:
        layers = {name: self._layers[name] for name in self._names}
        left_out = {name: self._left_out(layer) for name, layer in layers.items()}
        trimmed = [
            Trimmed(name, len(items), sum([one.tokens for one in items]), _reason(name))
            for name, items in left_out.items()
            if items
        ]
        standing = [one for name in standing_layers() for one in left_out.get(name, ())]
        return FilledBudget(
            {name: layer.in_order() for name, layer in layers.items()},
            {name: layer.all_tokens for name, layer in layers.items()},
            self._form.overhead_tokens(),
            trimmed,
            [*self._following, *standing][:MAX_FOLLOWING],
        )

    def _left_out(self, layer: _Layer) -> list[PricedItem]:
        """Return the items that were not added, without standing text that repeats the context."""
        waiting = [one for _, one in layer.waiting()]
        if LAYERS[layer.name].ceiling:
            waiting = [one for one in waiting if not self._repeats(layer, one.item)]
        return _with_joined(waiting)


def _cost(items: Iterable[PricedItem]) -> int:
    return sum([one.cost for one in items])


def _with_joined(items: Iterable[PricedItem]) -> list[PricedItem]:
    return [part for one in items for part in (one, *one.joined)]


def _chronological_key(one: PricedItem) -> tuple[bool, datetime, tuple[int, int]]:
    item = one.item
    return not item.is_in_span, item.time or EPOCH, item.source_sequences or (0, 0)


def _reason(name: str) -> str:
    return "over its share of the budget" if LAYERS[name].ceiling else "no room"


def _step(fitting: int) -> int:
    """Return the step for a window of this many turns. Starting at its multiple drops less than a quarter of them."""
    return min(MAX_STEP, 1 << max(fitting.bit_length() - 3, 0))


def _last_step(older: Sequence[Item], step: int) -> int:
    """Return the index of the oldest turn whose sequence number is a multiple of the step, or -1.

    The turns are sorted newest first.
    """
    sequences = [(item.source_sequences or (1, 1))[0] for item in older]
    return max((place for place, sequence in enumerate(sequences) if sequence % step == 0), default=-1)


# --- repetitions ---


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
