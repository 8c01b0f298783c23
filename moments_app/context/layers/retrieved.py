"""The layer `retrieved`: facts, moments and turns that answer the query, from any session.

If the query mentions a time, results from that time come first. They get up to `SPAN_SHARE` of the budget, or all of it
if the query has no other terms. If results must fit the query (`must_fit`) and none does, the layer is empty.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain
from operator import itemgetter
from zoneinfo import ZoneInfo

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.engines.statements import is_question
from moments_app.engines.statements.dates import spoken_date, with_dates
from moments_app.recall.query_terms import query_words
from moments_app.recall.request import Span
from moments_app.recall.results import Result
from moments_app.recall.said_in import said_in, span_of
from moments_app.recall.search import recall
from sessions_app.retention.read_archived import UNREADABLE
from sessions_app.text.length import estimate_tokens, shorten_middle

MAX_CHARS, MIN_CHARS = 600, 350  # maximum characters of a result, for large and for small budgets
CHARS_A_TOKEN = 0.7  # maximum characters of a result per token of the budget, within these limits
LINE_TOKENS = 28  # tokens of a short result, from which the number of requested results is computed
MOST = 200
# Minimum share of the best score. A word that occurs in almost every turn says nothing about any of them, and would
# fill the budget with arbitrary turns (docs/decisions/0015).
MIN_SHARE = 0.01
# The minimum fit with `must_fit`: the best text's share of the words in the query, weighted by rarity. For the
# measurements, see docs/benchmarks.md.
MIN_FIT = 0.25
USUAL_LINE = 30  # tokens of a usual result
SPAN_SHARE = 0.25  # share of the budget for results from the time mentioned in the query, if the query has other terms
_SEARCHES = (("text", "words"), ("semantic", "meaning"))  # labels for operators


def items(source: ContextInput) -> Iterable[Item]:
    """Return search results as items, best first. There are more than fit, because other layers may contain some.

    Items are created lazily, because about a third of them don't fit and are never read.
    """
    if source.recall is None:
        return []
    most = min(max(source.applied // LINE_TOKENS, 1), MOST)
    user, agent_id, request = source.user, source.session.agent_id, source.recall
    words = query_words(user, agent_id, request.text, request.searched_vector)
    found = recall(user, agent_id, request, most=most, least_share=MIN_SHARE, words=words)
    shown = [result for result in found if _is_shown(source, result)]
    fits = not request.must_fit or (len(words.terms) > 1 and any(_fits(source, result) for result in shown))
    results = [(_score(result), result) for result in shown] if fits else []
    results.sort(key=itemgetter(0), reverse=True)  # long results have a lower score here
    nothing_said: list[Item] = []
    span = span_of(user, request, words, source.query)
    if span is not None and (fits or span.is_all):
        then = said_in(user, agent_id, request, span, most=most)
        first = [(_score(result), result) for result in then if _is_shown(source, result)]
        results = [*_of_share(first, span, source.applied), *results]
        nothing_said = [_nothing_said(span)] if not then and is_question(source.query) else []
    most_chars = min(MAX_CHARS, max(MIN_CHARS, int(CHARS_A_TOKEN * source.applied)))
    zone = user.zone
    return chain(nothing_said, (_line(result, zone, score, most_chars, span) for score, result in results))


def _is_shown(source: ContextInput, result: Result) -> bool:
    """Return whether a context may include a result."""
    assert source.recall is not None
    said = result.said
    # The current message may already be in memory, and would be its own best match.
    if said == UNREADABLE or source.query.startswith(said) or _is_left_out(source, result):
        return False
    return not result.is_over or source.recall.asks_of_past or bool(result.planned)


def _fits(source: ContextInput, result: Result) -> bool:
    """Return whether a result fits the query. Live turns don't count, because the model already has them."""
    session = source.session
    is_live = result.session_id == session.session_id and (result.sequence or 0) >= session.live_from_sequence
    return result.share >= MIN_FIT and not is_live


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


def _line(result: Result, zone: ZoneInfo, score: float, most_chars: int, span: Span | None) -> Item:
    """Return a result as an item.

    Args:
        most_chars: Maximum characters of the text. Longer texts are cut in the middle.
        span: The time mentioned in the query.
    """
    is_of_span = span is not None and span.has(result.time)
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
    """Return when an ended fact was valid, or when a plan is due. Blank for a valid fact."""
    if planned := result.planned:
        return f" ({planned})"
    if result.valid_until is None:
        return ""
    since = f"from {result.valid_from.astimezone(zone):%Y-%m-%d} " if result.valid_from else ""
    return f" (held {since}until {result.valid_until.astimezone(zone):%Y-%m-%d})"


def _score(result: Result) -> float:
    """Return the score of a result. Long derived items score lower, because their source turns can replace them."""
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
