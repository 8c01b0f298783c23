"""`said_in`: find results from a span of time, even if they don't contain the words of the query."""

from dataclasses import replace
from datetime import datetime

from django.db import connection

from moments_app.recall.query_terms import query_words
from moments_app.recall.request import RecallRequest, Span, span_in
from moments_app.recall.results import Key, Result, read_found
from moments_app.recall.search import rank, recall, search
from moments_app.recall.term_weights import QueryWords
from sessions_app.models import UserProfile

MAX_SCANNED = 5_000  # maximum newest turns of a span to sample from
# A long span has more turns than fit into a context, so the query samples turns from all parts of the span. It uses the
# indexes of a person's newest turns, moments and facts.
_SCAN_SQL = """
(SELECT 'moment' AS kind, id, 0::bigint AS sequence FROM moments_app_moment
 WHERE user_id = %(user)s AND ends_at >= %(since)s AND ends_at < %(until)s
 ORDER BY ends_at DESC, first_sequence DESC, id DESC LIMIT %(most)s)
UNION ALL
(SELECT 'fact', id, 0 FROM moments_app_memoryatom
 WHERE user_id = %(user)s AND formed_at >= %(since)s AND formed_at < %(until)s AND state NOT IN ('evicted', 'line')
 ORDER BY formed_at DESC, id DESC LIMIT %(most)s)
UNION ALL
(SELECT 'turn', session_id, sequence FROM (
    SELECT session_id, sequence, row_number() OVER (ORDER BY created_at, id) AS place, count(*) OVER () AS number
    FROM (
        SELECT session_id, sequence, created_at, id FROM sessions_app_message
        WHERE user_id = %(user)s AND created_at >= %(since)s AND created_at < %(until)s
          AND kind IN ('turn', 'archived') AND role IN ('user', 'assistant') AND retracted_at IS NULL
        ORDER BY created_at DESC, id DESC LIMIT %(scanned)s
    ) newest
 ) said WHERE (place - 1) %% greatest(ceil(number::numeric / %(most)s), 1) = 0)
"""


def recall_with_span(
    user: UserProfile, agent_id: str, request: RecallRequest, *, most: int
) -> tuple[list[Result], Span | None]:
    """Return the best results that a person may see, and the span mentioned in the query.

    Results from the span come first. They fill the whole list, or half of it if the query also asks for something else.
    Return no span if the request has time limits, or is about one person.

    Args:
        user, agent_id, request: as in `recall`.
        most: the maximum number of results.
    """
    words = query_words(user, agent_id, request.text, request.searched_vector)
    found = recall(user, agent_id, request, most=most, words=words)
    has_own = request.since or request.until or request.about
    if has_own or not (span := span_of(user, request, words, request.text)):
        return found, None
    then = said_in(user, agent_id, request, span, most=most)
    first = then if span.is_all else then[: (most + 1) // 2]
    known = {result.ref for result in first}
    others = [result for result in found if result.ref not in known]
    return [*sorted(first, key=lambda result: result.time), *others][:most], span


def span_of(user: UserProfile, request: RecallRequest, words: QueryWords, query: str) -> Span | None:
    """Return the span mentioned in a query, relative to the time of the request.

    Args:
        words: the words of the request, whose span is relative to the current time.
    """
    is_read = request.as_of is None and query == request.text
    return words.span if is_read else span_in(query, request.now_of(user))


def said_in(user: UserProfile, agent_id: str, request: RecallRequest, span: Span, *, most: int) -> list[Result]:
    """Return results from a span: first those that match the other words of the query, then moments, facts and turns.

    Runs a constant number of queries.

    Args:
        agent_id: the agent whose shards are searched.
        request: the search; only results of its kinds are returned.
        most: the maximum number of results of each kind.
    """
    scores: dict[Key, float] = {}
    if not span.is_all:
        within = replace(request, text=span.rest, since=span.since, until=span.until)
        words = query_words(user, agent_id, span.rest, request.searched_vector)
        scores = rank(search(user, words, within, most), most)
    keys = dict.fromkeys([*scores, *_scanned(user, request, span, most)])
    found = read_found(user, span.since, request.as_of, list(keys))
    for key, result in found.items():
        result.score = scores.get(key, 0.0)
    return [found[key] for key in keys if key in found and span.has(found[key].time)]


def _scanned(user: UserProfile, request: RecallRequest, span: Span, most: int) -> list[Key]:
    until = min(span.until, request.as_of) if request.as_of else span.until
    parameters: dict[str, int | datetime] = {
        "user": user.pk,
        "since": span.since,
        "until": until,
        "most": most,
        "scanned": MAX_SCANNED,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SCAN_SQL, parameters)
        return [(kind, (pk, sequence)) for kind, pk, sequence in cursor.fetchall() if kind in request.kinds]
