"""`retrieved`: facts, moments and turns that answer the query, from this session or any other.

If the query names a time, results from that time come first. They may fill the layer if the query asks for nothing
else; otherwise they get up to `SPAN_SHARE` of the budget.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import overload
from zoneinfo import ZoneInfo

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.engines.statements import is_question
from moments_app.engines.statements.dates import spoken_date, with_dates
from moments_app.recall.results import Result
from moments_app.recall.said_in import said_in
from moments_app.recall.search import recall
from moments_app.recall.spans import Span, span_in
from sessions_app.models import UserProfile
from sessions_app.retention.read_archived import UNREADABLE
from sessions_app.text.shorten import shorten_middle
from sessions_app.text.tokens import estimate_tokens

MAX_CHARS, LEAST_CHARS = 600, 350  # maximum characters of a result: for large and for small budgets
CHARS_A_TOKEN = 0.7  # of the budget, between these limits; a long turn then takes at most a fifth of the budget
LINE_TOKENS = 28  # of a short result; recall is asked for as many results as could fit
MOST = 200
# Minimum share of the best score. A word that occurs in almost every turn says nothing about any of them, and would
# fill the budget with arbitrary turns (docs/decisions/0015).
LEAST_SHARE = 0.01
USUAL_LINE = 30  # tokens
SPAN_SHARE = 0.25  # of the budget, for the time that a query names if it also asks for something else
_SEARCHES = (("text", "words"), ("semantic", "meaning"))  # labels for operators


class FoundItems(Sequence[Item]):
    """The items of results. Each is created on access, because about half of them don't fit and are never read.

    Args:
        person: the person whose memory it is; days are in their time zone.
        results: best first, each with its score in a context.
        most_chars: maximum characters of a text; longer texts are cut in the middle.
        span: the time that the query names.
    """

    def __init__(
        self,
        person: UserProfile,
        results: Sequence[tuple[float, Result]],
        most_chars: int,
        span: Span | None = None,
    ) -> None:
        self._person, self._results, self._most_chars, self._span = person, results, most_chars, span
        self._zone = person.zone

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        if isinstance(place, slice):
            return FoundItems(self._person, self._results[place], self._most_chars, self._span)
        return self._item(*self._results[place])

    def __iter__(self) -> Iterator[Item]:
        return (self._item(score, result) for score, result in self._results)

    def __len__(self) -> int:
        return len(self._results)

    def _item(self, score: float, result: Result) -> Item:
        is_of_span = bool(self._span and self._span.has(result.time))
        return _line(result, self._zone, score, self._most_chars, is_of_span=is_of_span)


def items(source: ContextInput) -> Sequence[Item]:
    """Return the best results first. There are more than fit, because other layers may contain some."""
    if source.recall is None:
        return []
    most = min(max(source.applied // LINE_TOKENS, 1), MOST)
    found = recall(source.user, source.session.agent_id, source.recall, most=most, least_share=LEAST_SHARE)
    kept = [(_score(result), result) for result in _told(source, found)]
    kept.sort(key=lambda scored: -scored[0])  # the order changes, because long results have a lower score here
    most_chars = min(MAX_CHARS, max(LEAST_CHARS, int(CHARS_A_TOKEN * source.applied)))
    span = span_in(source.query, source.recall.now_of(source.user))
    if span is None:
        return FoundItems(source.user, kept, most_chars)
    then = said_in(source.user, source.session.agent_id, source.recall, span, most=most)
    first = [(_score(result), result) for result in _told(source, then)]
    items = FoundItems(source.user, [*_of_share(first, span, source.applied), *kept], most_chars, span)
    return items if then or not is_question(source.query) else [_nothing_said(span), *items]


def _told(source: ContextInput, found: Iterable[Result]) -> Iterator[Result]:
    """Yield the results that a context may include."""
    assert source.recall is not None
    # The current message may already be in memory, and it would be its own best match.
    readable = (result for result in found if result.said != UNREADABLE and not _is_left_out(source, result))
    told = (result for result in readable if not result.is_over or source.recall.asks_of_past or result.planned)
    return (result for result in told if not source.query.startswith(result.said))


def _of_share(results: Sequence[tuple[float, Result]], span: Span, applied: int) -> Iterator[tuple[float, Result]]:
    """Yield the results of a span until they exceed its share of the budget."""
    left = applied if span.is_all else int(SPAN_SHARE * applied)
    for score, result in results:
        left -= estimate_tokens(result.content[:MAX_CHARS])
        if left < 0:
            return
        yield score, result


def _nothing_said(span: Span) -> Item:
    first, last = span.since.date(), (span.until - timedelta(microseconds=1)).date()
    days = f"on {spoken_date(first)}" if first == last else f"from {spoken_date(first)} to {spoken_date(last)}"
    return Item(f"Nothing was said {days}.", is_of_span=True)


def _is_left_out(source: ContextInput, result: Result) -> bool:
    """Return whether a result is a turn of the session that the context must leave out."""
    of_session = result.kind == "turn" and result.session_id == source.session.session_id
    return of_session and result.sequence is not None and result.sequence >= source.before


def _line(result: Result, zone: ZoneInfo, score: float, most_chars: int, *, is_of_span: bool) -> Item:
    sequences = None if result.sequence is None else (result.sequence, result.sequence)
    text = shorten_middle(result.said, most_chars, result.ref)
    if result.kind == "turn":
        text = with_dates(text, result.time.astimezone(zone).date())
    return Item(
        text + result.marks + _span(result, zone),
        ref=result.ref,
        source_sequences=sequences,
        time=result.time,
        zone=zone,
        role=result.role,
        why=_why(result, is_of_span=is_of_span),
        score=score,
        is_neighbour=not result.ranks and not is_of_span,
        is_of_span=is_of_span,
        marks=result.marks,
        also=result.also,
    )


def _span(result: Result, zone: ZoneInfo) -> str:
    """Return when an ended fact was valid or when a plan is due; blank for a valid fact."""
    if planned := result.planned:
        return f" ({planned})"
    if result.valid_until is None:
        return ""
    since = f"from {result.valid_from.astimezone(zone):%Y-%m-%d} " if result.valid_from else ""
    return f" (held {since}until {result.valid_until.astimezone(zone):%Y-%m-%d})"


def _score(result: Result) -> float:
    """Return the score of a result. Long derived items score lower, because their turns can be included instead."""
    if result.kind == "turn" or result.score <= 0:
        return result.score
    return result.score * min(1.0, USUAL_LINE / max(estimate_tokens(result.content), 1))


def _why(result: Result, *, is_of_span: bool) -> str:
    ranks = result.ranks
    missing = "from the time that the query names" if is_of_span else "next to a search result"
    found = [f"{name} no. {ranks[search]}" for search, name in _SEARCHES if search in ranks]
    return f"{', '.join(found) or missing}; worth {result.score:.2f}"


add_layer(
    Layer(
        "retrieved",
        items,
        place=70,
        tag="RetrievedMemories",
        title="Retrieved memories",
        items_then=lambda source, _as_of: items(source),  # the search itself is limited to that time
    )
)
