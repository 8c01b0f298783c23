"""Fill the budget of a context, in an order that is always the same for the same memory and query.

Tokens are counted for the rendered text, line by line with its wrapping, so the text never exceeds the sum. The budget
is filled rather than trimmed:

1. Policy and query, always; then items that are certain, for example the newest round.
2. The whole live window if it fits into half of the remaining budget; otherwise its newest turns.
3. Who the person is, then short standing text. It gets a share of the budget, with a ceiling for each layer. The layers
   take turns, line by line. This text doesn't depend on the query, so the beginning of the context stays identical and
   providers' prompt caches serve it.
4. Recall results, best first, until the budget is full. They get at least half of what remained.
5. If all results fit, more standing text, up to the ceilings, and older live turns.

Without recall (`plan=stable`), standing text gets all of its ceilings, and live turns the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest

from moments_app.context.item import Item
from moments_app.context.layers import ALWAYS, LAYERS, standing_layers
from moments_app.context.priced import (
    DayHeadings,
    ItemGroup,
    PricedItem,
    SaidAlready,
    group_of_one,
    groups_of,
    priced,
    shortened,
)
from moments_app.context.render import Format, day_of
from sessions_app.refusals import Refusal

# While recall has results to add, all standing text together gets this share of the tokens above `STANDING_FROM`: a
# small budget is for the answer to the query.
STANDING_SHARE, STANDING_FROM = 0.15, 750
WHO_TOKENS = 100  # minimum for lines about who the person is; search results need more tokens for that
STEP = 32  # turns; a partial window starts at a multiple of this, so that its start seldom changes
NEXT = 5  # items that didn't fit, shown to an operator
LEAST_LINE = 10  # tokens
SHORT_LINE = 20  # characters; in a longer text, such a line may have another meaning
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BudgetTooSmall(Refusal):
    """The policy and the query need more tokens than the budget.

    Args:
        needed: tokens that would be enough for them.
        applied: the budget.
    """

    code, status = "budget_too_small", 422

    def __init__(self, needed: int, applied: int) -> None:
        super().__init__(
            f"max_tokens: the policy and the query need {needed} tokens, but the budget is {applied}. "
            "Shorten the query, or raise max_tokens (at most MEMORY_CONTEXT__MAX_TOKENS)."
        )
        self.needed, self.applied = needed, applied


@dataclass(frozen=True)
class Trimmed:
    """The part of a layer that was left out, and the tokens it would have taken.

    Recall results are never counted here, because recall always has more. Of the live window, no more turns are counted
    than the whole budget could hold.
    """

    layer: str
    count: int
    tokens: int
    reason: str


@dataclass
class FilledBudget:
    """The layers of a context within its budget.

    Args:
        layers: the items by layer, in order.
        costs: the tokens of each layer, with its wrapping and its days.
        overhead: the tokens of the wrapping around all layers.
        trimmed: the parts that were left out.
        next: the best items that a larger budget would include.
    """

    layers: dict[str, list[PricedItem]]
    costs: dict[str, int]
    overhead: int
    trimmed: list[Trimmed] = field(default_factory=list)
    next: list[PricedItem] = field(default_factory=list)

    def tokens_of(self, name: str) -> int:
        """Return the tokens of a layer with its wrapping; 0 for an empty layer."""
        return self.costs[name]

    @property
    def tokens(self) -> int:
        return self.overhead + sum(self.costs.values())


def fill_budget(
    layers: Mapping[str, Sequence[Item]],
    form: Format,
    applied: int,
    *,
    is_whole: bool = False,
    recalls: bool = True,
    sent: Iterable[str] = (),
) -> FilledBudget:
    """Fill a budget.

    Args:
        layers: the items by layer, in order; recall results are sorted best first.
        form: the format of the context.
        applied: the maximum number of tokens.
        is_whole: whether the hot turns are the whole live window.
        recalls: whether recall gets at least half; if not, standing text and the live window share the budget.
        sent: texts that the caller gives the model in addition to the context.

    Raises:
        BudgetTooSmall: the policy and the query don't fit.
    """
    budget = _Budget(layers, form, applied, sent)
    budget.take_what_always_stands()
    if recalls:
        half = budget.left // 2
        budget.take_window(half, is_whole=is_whole)
        room = half - budget.tokens_of("hot_turns")
        if applied > STANDING_FROM:
            pool = min(STANDING_SHARE * (applied - STANDING_FROM), room)
            budget.take_who(min(WHO_TOKENS, room))
            budget.take_standing(int(pool) - budget.tokens_of("user"), standing_layers())
        if budget.take_recalled():
            budget.take_standing(budget.left, standing_layers())
            budget.take_older_turns()
    else:
        # The summary changes after each round and precedes the turns, so it is only added if the turns don't cover it.
        budget.take_standing(budget.left, [name for name in standing_layers() if name != "summary"])
        budget.take_older_turns()
        budget.take_standing(budget.left, ["summary"])
    return budget.filled()


class _Budget:
    """A budget that is being filled."""

    def __init__(self, layers: Mapping[str, Sequence[Item]], form: Format, applied: int, sent: Iterable[str]) -> None:
        self._form, self._applied = form, applied
        self._groups = {name: groups_of(name, items, form) for name, items in layers.items() if name != "retrieved"}
        self._recalled = layers.get("retrieved", ())  # each is priced only if it may fit
        self._following: list[PricedItem] = []  # the best recall results that don't fit
        self._taken: dict[str, dict[int, ItemGroup]] = {name: {} for name in layers}  # by their places
        self._tokens = dict.fromkeys(layers, 0)  # of the taken items
        self._said, self._headings = SaidAlready(sent), DayHeadings(form)
        self._passed_over: set[tuple[str, int]] = set()
        self.left = applied - form.overhead_tokens()

    def tokens_of(self, name: str) -> int:
        """Return the tokens taken by a layer so far, without its wrapping."""
        return self._tokens.get(name, 0)

    def take_what_always_stands(self) -> None:
        """Take the policy and the query, then the items that are certain.

        Raises:
            BudgetTooSmall: the policy and the query don't fit.
        """
        always = [group for name in ALWAYS for group in self._groups.get(name, ())]
        needed = self._applied - self.left + sum(self._cost_in_all(always).values())
        if needed > self._applied:
            raise BudgetTooSmall(needed, self._applied)
        for group in always:
            self._take(group, self.left)
        for name in ("now", "hot_turns"):
            for group in reversed(self._groups.get(name, ())):
                if group.first.is_certain:
                    self._take(group, self.left)

    def take_window(self, room: int, *, is_whole: bool) -> None:
        """Take the whole live window if it fits, otherwise its newest turns.

        Args:
            room: the maximum number of tokens.
            is_whole: whether the layer has the whole window.
        """
        taken = self._taken.get("hot_turns", {})
        waiting = [group for group in reversed(self._groups.get("hot_turns", ())) if group.place not in taken]
        if is_whole and sum(self._cost_in_all(waiting).values()) <= room:
            for group in waiting:
                self._take(group, room, why="the whole live window fits")
            return
        for group in waiting:
            cost = self._cost(group)
            if not group.first.score or not self._take(group, room):
                return
            room -= cost

    def take_who(self, room: int) -> None:
        """Take the lines about who the person is, uncut. Other lines about them must leave room for recall."""
        end = self.left - room
        for group in self._groups.get("user", ()):
            if group.first.is_certain:
                self._take_standing(group, self.left - end, cuts=False)

    def take_standing(self, room: int, names: Iterable[str]) -> None:
        """Take short standing text, one item per layer in turn. The first item of a layer may be cut at a sentence.

        Args:
            room: the maximum tokens of all standing text.
            names: the names of the layers.
        """
        end = self.left - room
        waiting = [self._groups.get(name, []) for name in names]
        for round_ in zip_longest(*waiting):
            for group in round_:
                if group and not self._is_taken(group):
                    self._take_standing(group, self.left - end, cuts=True)

    def _take_standing(self, group: ItemGroup, room: int, *, cuts: bool) -> None:
        if self._is_said(group):
            self._passed_over.add((group.layer, group.place))
            return
        ceiling = int(LAYERS[group.layer].ceiling * self._applied) - self._wrapped_tokens(group.layer)
        most = min(room, ceiling)
        is_taken = group.tokens <= most and self._take(group, most)  # most groups are too long for a full layer
        if not is_taken and cuts and not self._taken[group.layer]:
            wrapping = self._form.wrapping_tokens(group.layer)
            if shorter := shortened(group.items[0], group.layer, self._form, most - wrapping):
                self._take(group_of_one(group.layer, group.place, shorter), room)

    def take_recalled(self) -> bool:
        """Take recall results, best first, while there is room. Return whether all of them fit."""
        for place, item in enumerate(self._recalled):
            if self.left < LEAST_LINE and len(self._following) >= NEXT:
                break
            if self._said.has_address(item) or self._said.has(item) or self._said.is_told(item):
                continue
            group = group_of_one("retrieved", place, priced("retrieved", item, self._form))
            if not self._take(group, self.left):
                self._following += group.items
        return not self._following

    def take_older_turns(self) -> None:
        """Take older live turns, newest first. If some don't fit, start at a multiple of `STEP`."""
        older: list[ItemGroup] = []
        room = self.left
        for group in reversed(self._groups.get("hot_turns", ())):
            if self._is_taken(group):
                continue
            cost = self._cost(group) if not older and not self._taken["hot_turns"] else group.tokens
            if cost > room:
                older = older[: _last_step(older) + 1]
                break
            older.append(group)
            room -= cost
        for group in older:
            self._take(group, self.left)

    def _is_taken(self, group: ItemGroup) -> bool:
        return group.place in self._taken[group.layer]

    def _is_said(self, group: ItemGroup) -> bool:
        """Return whether standing text repeats other text word for word, or summarizes turns that are all included."""
        if group.layer == "summary" and group.first.source_sequences:
            first, last = group.first.source_sequences
            turns = {taken.first.source_sequences for taken in self._taken.get("hot_turns", {}).values()}
            return {(number, number) for number in range(first, last + 1)} <= turns
        return self._said.has(group.first) or (group.layer == "conversation" and self._is_in_moments(group.first))

    def _is_in_moments(self, item: Item) -> bool:
        """Return whether an included checkpoint or moment contains the line word for word, unless the line is short."""
        moments = self._taken.get("moments", {}).values()
        return any(len(item.told) > SHORT_LINE and item.told in moment.first.told for moment in moments)

    def _wrapped_tokens(self, name: str) -> int:
        return self.tokens_of(name) + (self._form.wrapping_tokens(name) if self._taken[name] else 0)

    def _cost(self, group: ItemGroup) -> int:
        """Return the tokens that a group would add now."""
        return group.tokens + sum(self._around(group))

    def _around(self, group: ItemGroup) -> tuple[int, int]:
        """Return the tokens that a group would add around it: the wrapping of its layer, and its day."""
        wrapping = 0 if self._taken[group.layer] else self._form.wrapping_tokens(group.layer)
        day = day_of(group.layer, group.first)
        return wrapping, self._headings.cost(day, is_of_span=group.first.is_of_span) if day else 0

    def _cost_in_all(self, groups: Iterable[ItemGroup]) -> dict[str, int]:
        """Return the tokens that groups would add together, by layer."""
        costs: dict[str, int] = {}
        for group in groups:
            first = group.layer not in costs
            costs[group.layer] = costs.get(group.layer, 0) + (self._cost(group) if first else group.tokens)
        return costs

    def _take(self, group: ItemGroup, room: int, *, why: str = "") -> bool:
        """Take a group if there is room."""
        wrapping, heading = self._around(group)
        tokens = group.tokens + heading
        if wrapping + tokens > min(room, self.left):
            return False
        self.left -= wrapping + tokens
        self._tokens[group.layer] += tokens
        if heading and (day := day_of(group.layer, group.first)):
            self._headings.add(day, is_of_span=group.first.is_of_span)
        if why:
            group = group._replace(items=[one._replace(why=why) for one in group.items])
        self._taken[group.layer][group.place] = group
        for one in group.items:
            self._said.add(one.item)
        return True

    def filled(self) -> FilledBudget:
        """Return the filled budget."""
        layers = {name: self._in_order(name) for name in self._taken}
        costs = {name: self._wrapped_tokens(name) for name in layers}
        left_out = {name: self._left_out(name) for name in self._groups}
        trimmed = [
            Trimmed(name, len(items), sum(one.tokens for one in items), _reason(name))
            for name, items in left_out.items()
            if items
        ]
        standing = [one for name in standing_layers() for one in left_out.get(name, ())]
        following = [*self._following, *standing][:NEXT]
        return FilledBudget(layers, costs, self._form.overhead_tokens(), trimmed, following)

    def _in_order(self, name: str) -> list[PricedItem]:
        """Return the items of a layer in their final order: recalled ones by time, those of the query's span first."""
        groups = [group for _place, group in sorted(self._taken[name].items())]
        if name == "retrieved":
            groups.sort(key=_place_in_time)
        return [one for group in groups for one in group.items]

    def _left_out(self, name: str) -> list[PricedItem]:
        taken, passed_over = self._taken[name], self._passed_over
        return [
            one
            for group in self._groups[name]
            if group.place not in taken and (name, group.place) not in passed_over
            for one in group.items
        ]


def _place_in_time(group: ItemGroup) -> tuple[bool, datetime, tuple[int, int]]:
    item = group.first
    return not item.is_of_span, item.time or EPOCH, item.source_sequences or (0, 0)


def _reason(name: str) -> str:
    return "over its share of the budget" if LAYERS[name].ceiling else "no room"


def _last_step(older: Sequence[ItemGroup]) -> int:
    """Return the index of the last of these turns, sorted newest first, at a multiple of `STEP`, or −1."""
    sequences = [(group.first.source_sequences or (1, 1))[0] for group in older]
    return max((place for place, sequence in enumerate(sequences) if sequence % STEP == 0), default=-1)
