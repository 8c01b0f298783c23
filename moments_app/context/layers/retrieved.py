"""The layers that depend on the query: `retrieved` and `entities`.

`retrieved` contains facts, moments and turns that match the query, from any session. If the query mentions a time,
results from that time come first. They get up to `SPAN_SHARE` of the budget, or all of it if the query has no other
terms. With `must_fit`, the layer is empty if no result fits the query well.

`entities` contains open tasks, goals and problems, the most relevant first. The score is the sum of three parts: how
recently the entity changed before the session's last activity, with a half-life of seven days; how few links separate
it from an entity of the session or the query (1 / (1 + hops), up to two hops); and how well its words match the query's
(0 to 1).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from operator import itemgetter
from uuid import UUID
from zoneinfo import ZoneInfo

from moments_app.context.input import ContextInput, Item
from moments_app.context.layers import Layer, add_layer
from moments_app.engines.statements import is_question
from moments_app.engines.statements.dates import date_in_words, with_dates
from moments_app.models.atom import ENTITIES
from moments_app.models.entity import OPEN_SQL
from moments_app.recall.query_terms import query_words
from moments_app.recall.request import MAX_WORDS, Span
from moments_app.recall.results import Result
from moments_app.recall.search import recall, results_in_span, span_for
from sessions_app import lexemes
from sessions_app.database.sql import prepared_cursor
from sessions_app.process_cache import cached_by_hash
from sessions_app.retention.read_archived import UNREADABLE
from sessions_app.text.length import estimate_tokens, shorten_middle

MAX_CHARS, MIN_CHARS = 600, 350  # maximum characters of a result, for large and for small budgets
CHARS_A_TOKEN = 0.7  # characters of a result per token of the budget, between these two limits
LINE_TOKENS = 28  # tokens of a short result; the number of requested results is the budget divided by this number
MAX_RESULTS = 200
# Minimum score of a result, as a share of the best score. Without a minimum, a word that occurs in almost every turn
# would fill the budget with arbitrary turns (docs/decisions/0015).
MIN_SHARE = 0.01
# With `must_fit`, one result must contain at least this share of the query's words, weighted by rarity. For the
# measurements, see docs/benchmarks.md.
MIN_FIT = 0.25
USUAL_LINE = 30  # tokens of a typical result; longer derived items get a lower score
LINE_OVERHEAD = 8  # tokens around a result
# How much the score of a result depends on its length. 0: not at all. 1: results are sorted by score per token.
LENGTH_EXPONENT = 0.2
SPAN_SHARE = 0.25  # share of the budget for results from the time mentioned in the query, if the query has other terms
_SEARCHES = (("text", "words"), ("semantic", "meaning"))  # how operators' pages name the two searches
CACHED_TEXTS = 20_000  # maximum texts with cached token counts


@cached_by_hash(CACHED_TEXTS)  # the contexts of a person share many results
def _tokens(text: str) -> int:
    return estimate_tokens(text)


def retrieved(source: ContextInput) -> Iterable[Item]:
    """Return search results as items, best first.

    More results are returned than fit into the budget, because other layers may already contain some of them. Items are
    created lazily, because about a third of them are never read.
    """
    if source.recall is None:
        return []
    most = min(max(source.applied // LINE_TOKENS, 1), MAX_RESULTS)
    user, agent_id, request = source.user, source.session.agent_id, source.recall
    words = query_words(user, agent_id, request.text, request.searched_vector)
    found = recall(user, agent_id, request, most=most, least_share=MIN_SHARE, words=words)
    shown = [result for result in found if _is_shown(source, result)]
    fits = not request.must_fit or (len(words.terms) > 1 and any(_fits(source, result) for result in shown))
    results = [(_score(result), result) for result in shown] if fits else []
    results.sort(key=itemgetter(0), reverse=True)  # sort again, because `_score` lowers the scores of long results
    nothing_said: list[Item] = []
    span = span_for(user, request, words, source.query)
    if span is not None and (fits or span.is_whole_query):
        then = results_in_span(user, agent_id, request, span, most=most)
        first = [(_score(result), result) for result in then if _is_shown(source, result)]
        results = [*_within_share(first, span, source.applied), *results]
        nothing_said = [_empty_span_item(span)] if not then and is_question(source.query) else []
    most_chars = min(MAX_CHARS, max(MIN_CHARS, int(CHARS_A_TOKEN * source.applied)))
    zone = user.zone
    return chain(nothing_said, (_result_item(result, zone, score, most_chars, span) for score, result in results))


def _is_shown(source: ContextInput, result: Result) -> bool:
    assert source.recall is not None
    said = result.unmarked_content
    # The current message may already be in memory, and would be its own best match.
    if said == UNREADABLE or source.query.startswith(said) or _is_excluded(source, result):
        return False
    return not result.has_ended or source.recall.asks_about_past or bool(result.planned)


def _fits(source: ContextInput, result: Result) -> bool:
    """Return whether a result fits the query. Live turns never do, because they are in the context anyway."""
    session = source.session
    is_live = result.session_id == session.session_id and (result.sequence or 0) >= session.live_from_sequence
    return result.share >= MIN_FIT and not is_live


def _within_share(results: Sequence[tuple[float, Result]], span: Span, applied: int) -> Iterator[tuple[float, Result]]:
    """Yield the results from the time that the query mentions, up to their share of the budget."""
    left = applied if span.is_whole_query else int(SPAN_SHARE * applied)
    for score, result in results:
        left -= _tokens(result.content[:MAX_CHARS])
        if left < 0:
            return
        yield score, result


def _empty_span_item(span: Span) -> Item:
    first, last = span.since.date(), (span.until - timedelta(microseconds=1)).date()
    days = f"on {date_in_words(first)}" if first == last else f"from {date_in_words(first)} to {date_in_words(last)}"
    return Item(f"Nothing was said {days}.", is_in_span=True)


def _is_excluded(source: ContextInput, result: Result) -> bool:
    of_session = result.kind == "turn" and result.session_id == source.session.session_id
    return of_session and result.sequence is not None and result.sequence >= source.before


def _result_item(result: Result, zone: ZoneInfo, score: float, most_chars: int, span: Span | None) -> Item:
    is_in_span = span is not None and span.has(result.time)
    sequences = None if result.sequence is None else (result.sequence, result.sequence)
    text = shorten_middle(result.unmarked_content, most_chars, result.ref)
    if result.kind == "turn":
        text = with_dates(text, result.time.astimezone(zone).date())
    item = Item(
        text + result.marks + _validity(result, zone),
        ref=result.ref,
        source_sequences=sequences,
        time=result.time,
        zone=zone,
        role=result.role,
        why=_why(result, is_in_span=is_in_span),
        score=score,
        is_neighbor=not result.ranks and not is_in_span,
        is_in_span=is_in_span,
        marks=result.marks,
        also=result.also,
    )
    if result.words is not None and item.text == result.unmarked_content:
        item.words = result.words
    return item


def _validity(result: Result, zone: ZoneInfo) -> str:
    """Return when a past fact was valid, or when a plan is due. For a fact that is still valid, return ""."""
    if planned := result.planned:
        return f" ({planned})"
    if result.valid_until is None:
        return ""
    since = f"from {result.valid_from.astimezone(zone):%Y-%m-%d} " if result.valid_from else ""
    return f" (held {since}until {result.valid_until.astimezone(zone):%Y-%m-%d})"


def _score(result: Result) -> float:
    """Return the score of a result, considering its length.

    Long derived items score much lower, because their source turns can replace them.
    """
    if result.score <= 0:
        return result.score
    tokens = _tokens(result.content[:MAX_CHARS])
    of_kind = 1.0 if result.kind == "turn" else min(1.0, USUAL_LINE / max(tokens, 1))
    of_length: float = (USUAL_LINE / (tokens + LINE_OVERHEAD)) ** LENGTH_EXPONENT
    return result.score * of_kind * of_length


def _why(result: Result, *, is_in_span: bool) -> str:
    ranks = result.ranks
    missing = "from the time that the query names" if is_in_span else "next to a search result"
    found = [f"{name} no. {ranks[search]}" for search, name in _SEARCHES if search in ranks]
    return f"{', '.join(found) or missing}; worth {result.score:.2f}"


add_layer(
    Layer(
        "retrieved",
        retrieved,
        place=70,
        tag="RetrievedMemories",
        title="Retrieved memories",
        # the recall request already limits the search to that time
        items_as_of=lambda source, _as_of: retrieved(source),
    )
)


# --- open tasks, goals and problems ---

HALF_LIFE_DAYS = 7.0
MAX_HOPS = 2
RECENT = 500  # number of most recently changed entities to consider; a search finds older ones as facts
MAX_ENTITIES = 25
BODY_CHARS = 1_000

# Uses the index of a person's entities to find the newest, and the two indexes of links to find neighbors.
_CANDIDATES_SQL = """
WITH recent AS MATERIALIZED (
    SELECT id, atom_id, kind, left(content, %(chars)s) AS text, due_at, formed_at, source_session_id,
        CASE WHEN search_vector @@ %(words)s::tsquery THEN ts_rank(search_vector, %(words)s::tsquery) * %(forms)s END
        AS rank
    FROM moments_app_memoryatom WHERE user_id = %(user)s AND {open_entities}
    ORDER BY GREATEST(formed_at, ended_at) DESC, id DESC LIMIT %(recent)s
)
SELECT e.id, e.atom_id, e.kind, e.text, e.due_at, e.formed_at,
    e.source_session_id IS NOT DISTINCT FROM %(session)s, rank / (rank + 1),
    ARRAY(
        SELECT to_entity_id FROM moments_app_entitylink WHERE from_entity_id = e.id AND user_id = %(user)s
        UNION SELECT from_entity_id FROM moments_app_entitylink WHERE to_entity_id = e.id AND user_id = %(user)s
    )
FROM recent e
"""


@dataclass(frozen=True)
class Candidate:
    pk: int
    entity_id: UUID
    kind: str
    text: str  # the beginning of title and body
    due_at: datetime | None
    updated_at: datetime
    is_here: bool  # whether the entity is from this session
    match: float | None  # how well its words match the query's, 0 to 1; None if they share no words
    neighbors: list[int]  # primary keys of linked entities, in either direction

    def score(self, activity: datetime, hops: Mapping[int, int]) -> float:
        days = max((activity - self.updated_at).total_seconds() / 86_400, 0.0)
        recency: float = 0.5 ** (days / HALF_LIFE_DAYS)
        proximity = 1 / (1 + hops[self.pk]) if self.pk in hops else 0.0
        return recency + proximity + (self.match or 0.0)

    def item(self) -> Item:
        title, _, body = self.text.partition("\n")
        due = f" (due {self.due_at:%Y-%m-%d})" if self.due_at else ""
        text = f"[{self.kind}] {title}{due}{f': {body}' if body else ''}"
        return Item(text, ref=f"{ENTITIES}{self.entity_id}", time=self.updated_at)


def entities(source: ContextInput) -> Sequence[Item]:
    candidates = _candidates(source) if source.has_entities else []
    hops = _hops(candidates)
    activity = source.session.last_activity_at
    best = sorted(candidates, key=lambda candidate: (-candidate.score(activity, hops), -candidate.pk))
    return [candidate.item() for candidate in best[:MAX_ENTITIES]]


def _candidates(source: ContextInput) -> list[Candidate]:
    words, forms = lexemes.any_word_query(source.query, MAX_WORDS)
    parameters: dict[str, int | float | str] = {
        "user": source.user.pk,
        "session": source.session.pk,
        "words": words,
        "forms": forms,
        "recent": RECENT,
        "chars": BODY_CHARS,
    }
    with prepared_cursor() as cursor:
        cursor.execute(_CANDIDATES_SQL.format(open_entities=OPEN_SQL), parameters)
        return [Candidate(*row) for row in cursor]


def _hops(candidates: Sequence[Candidate]) -> dict[int, int]:
    """Return each candidate's number of links to the nearest entity of the session or the query."""
    neighbors: dict[int, set[int]] = defaultdict(set)
    for one in candidates:
        for other in one.neighbors:
            neighbors[one.pk].add(other)
            neighbors[other].add(one.pk)
    reached = {one.pk for one in candidates if one.is_here or one.match is not None}
    hops = dict.fromkeys(reached, 0)
    for distance in range(1, MAX_HOPS + 1):
        reached = {other for pk in reached for other in neighbors.get(pk, ()) if other not in hops}
        hops |= dict.fromkeys(reached, distance)
    return hops


add_layer(
    Layer("entities", entities, place=80, tag="OpenItems", title="Open tasks, goals and problems", ceiling=0.10, turn=5)
)
