"""Fitting a context into its budget, one item at a time, in an order that is always the same.

Everything is counted as it will be written down, line by line with its wrapping, so that the text can't turn out longer
than the sum. The work is linear in the items.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from moments_app.recall.item import Item
from moments_app.recall.layers import ALWAYS
from moments_app.recall.render import Format

# What goes first, one item at a time, and from which end: of hot turns the oldest, of what stands best first the last.
_DROPPED = (
    ("hot_turns", False),
    ("entities", True),
    ("retrieved", True),
    ("conversation", False),
    ("collective", False),
    ("now", False),
)
# Then these are shortened at a sentence, the last item first, and dropped where not even one sentence fits.
_CUT = ("summary", "moments", "user")

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


class BudgetTooSmall(Exception):
    """Policy and query alone need more.

    Args:
        needed: tokens that would do for them.
        applied: the budget.
    """

    def __init__(self, needed: int, applied: int) -> None:
        super().__init__(f"Policy and query alone need {needed} tokens; the budget is {applied}.")
        self.needed, self.applied = needed, applied


@dataclass(frozen=True)
class Line:
    """An item with what it costs."""

    item: Item
    tokens: int


@dataclass(frozen=True)
class Trimmed:
    """What one layer had to give."""

    layer: str
    count: int
    tokens: int
    reason: str


@dataclass
class Fitted:
    """Layers with what is left of them.

    Args:
        layers: by name, in order.
        overhead: tokens of the wrapping around all.
        trimmed: what had to go.
    """

    form: Format
    layers: dict[str, list[Line]]
    overhead: int
    trimmed: list[Trimmed] = field(default_factory=list)

    def tokens_of(self, name: str) -> int:
        """Of a layer, with its wrapping; an empty one costs nothing."""
        lines = self.layers[name]
        return sum(line.tokens for line in lines) + self.form.wrapping_tokens(name) if lines else 0

    @property
    def tokens(self) -> int:
        return self.overhead + sum(map(self.tokens_of, self.layers))


def fit(layers: Mapping[str, Sequence[Item]], form: Format, applied: int) -> Fitted:
    """Drops and cuts until it fits.

    Args:
        layers: by name, in order.
        form: in which it will be written.
        applied: most tokens.

    Raises:
        BudgetTooSmall: what is never dropped is too large.
    """
    priced = {name: [Line(item, form.tokens(name, item)) for item in items] for name, items in layers.items()}
    fitted = Fitted(form, priced, form.overhead_tokens())
    needed = fitted.overhead + sum(fitted.tokens_of(name) for name in ALWAYS if name in priced)
    if needed > applied:
        raise BudgetTooSmall(needed, applied)
    over = fitted.tokens - applied
    for name, from_end in _DROPPED:
        if over > 0 and fitted.layers.get(name):
            over -= _drop(fitted, name, over, from_end)
    for name in _CUT:
        if over > 0 and fitted.layers.get(name):
            over -= _cut(fitted, name, over)
    return fitted


def _drop(fitted: Fitted, name: str, over: int, from_end: bool) -> int:
    """Takes items from one end of a layer until so many tokens are saved or none is left; returns the tokens saved."""
    before, lines = fitted.tokens_of(name), fitted.layers[name]
    saved = count = 0
    for group in [[line] for line in reversed(lines)] if from_end else _groups(lines):
        if saved >= over:
            break
        saved += sum(line.tokens for line in group)
        count += len(group)
    fitted.layers[name] = lines[: len(lines) - count] if from_end else lines[count:]
    saved = before - fitted.tokens_of(name)
    fitted.trimmed.append(Trimmed(name, count, saved, "dropped"))
    return saved


def _groups(lines: Sequence[Line]) -> list[list[Line]]:
    """Each line with those joined to it."""
    groups: list[list[Line]] = []
    for line in lines:
        if line.item.joined and groups:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _cut(fitted: Fitted, name: str, over: int) -> int:
    """Shortens a layer from its end, at a sentence, dropping items of which none fits; returns the tokens saved."""
    before, lines = fitted.tokens_of(name), fitted.layers[name]
    most, held, dropped = before - over, before, 0
    while lines and held > most:
        last = lines.pop()
        held -= last.tokens
        if shorter := _shortened(fitted.form, name, last, most - held):
            lines.append(shorter)
            break
        dropped += 1
    saved = before - fitted.tokens_of(name)
    reason = "dropped" if dropped else "cut at a sentence"
    fitted.trimmed.append(Trimmed(name, dropped or 1, saved, reason))
    return saved


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
            best, low = Line(item, cost), middle + 1
        else:
            high = middle
    return best
