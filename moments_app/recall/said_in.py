"""`said_in`: find what was said in a span of time, whether or not it contains the words of the query.

A query names the span: "yesterday" or "on 17 November" becomes a span of days in the person's time zone. A future time
is no span, and neither is "today" in "What should I cook today?".
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, tzinfo

from django.db import connection

from moments_app.engines import times
from moments_app.engines.numbers import in_digits, plain
from moments_app.engines.times import Time
from moments_app.recall.request import RecallRequest
from moments_app.recall.results import Key, Result, read_found
from moments_app.recall.search import rank, recall, search
from moments_app.recall.words import query_words
from sessions_app import lexemes
from sessions_app.models import UserProfile

LONGEST = 300  # maximum characters of a query; longer texts mention times but don't ask about them
_KINDS = (times.RELATIVE, times.ABSOLUTE, times.ASKED)
_WEEK = timedelta(days=7, hours=1)  # plus an hour, in case the clocks are set back
_PARTS = {
    "morning": (time(0), time(12)),
    "afternoon": (time(12), time(18)),
    "evening": (time(17), time(23, 59, 59)),
}
_EVENING = time(17)
_NIGHTS_END = time(5)
MOST_SCANNED = 5_000  # newest turns of a span from which a sample is taken
# A long span has more turns than fit into a context, so turns are sampled from each of its parts. Uses the indexes of a
# person's newest turns, moments and facts.
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


@dataclass(frozen=True)
class Span:
    """A span of time that a query names, and the other words of the query.

    Args:
        since: the start, with a time zone.
        until: the end, exclusive.
        rest: the other words of the query.
        is_all: whether the query asks for nothing else.
    """

    since: datetime
    until: datetime
    rest: str = ""
    is_all: bool = True

    def has(self, moment: datetime) -> bool:
        """Return whether a time lies in the span."""
        return self.since <= moment < self.until


def span_in(text: str, now: datetime) -> Span | None:
    """Return the first span of past time that a query names; None if it names none or is too long to be a question.

    Args:
        text: the query.
        now: the time in the person's time zone.
    """
    if len(text) > LONGEST:
        return None
    likely = times.likely_languages(text)
    digits = in_digits(text, likely)
    found = _first(digits, likely, now)
    if found is None and not lexemes.certain_language(text):
        others = [language for language in times.latin_languages() if language not in likely]
        found = _first(digits, others, now, times.LATIN_SHORTEST)
    if found is None:
        return None
    (begin, end), (first, last) = found
    rest = f"{digits[:first]} {digits[last:]}"
    is_all = _asks_nothing_else(rest, likely)
    is_under_way = end > now and end - begin <= _WEEK
    return None if is_under_way and not is_all else Span(begin, end, rest.strip(), is_all)


Bounds = tuple[datetime, datetime]


def _first(
    digits: str, languages: Iterable[str], now: datetime, shortest: int = 0
) -> tuple[Bounds, tuple[int, int]] | None:
    """Return the leftmost past time and its place.

    If several start at the same place, return the longest, then the latest.
    """
    found = [
        (bounds, (one.start, one.end))
        for one in times.times_in(digits, languages, _KINDS, now.date())
        if one.end - one.start >= shortest and (bounds := _bounds(one.time, now.tzinfo))[0] <= now
    ]
    return min(found, key=lambda one: (one[1][0], -one[1][1], now - one[0][0]), default=None)


def _bounds(named: Time, zone: tzinfo | None) -> Bounds:
    """Return when a time begins and ends in the person's time zone."""
    if named.name in _PARTS:
        first, last = _PARTS[named.name]
        return _at(named.first, first, zone), _at(named.first, last, zone)
    if named.unit == "part":
        return _at(named.first, _EVENING, zone), _at(named.end, _NIGHTS_END, zone)
    return _at(named.first, time(0), zone), _at(named.end, time(0), zone)


def _at(day: date, clock: time, zone: tzinfo | None) -> datetime:
    return datetime.combine(day, clock, zone)


def _asks_nothing_else(rest: str, languages: Collection[str]) -> bool:
    """Return whether the words around a time only ask what was said."""
    known = {*languages, lexemes.DEFAULT}
    asking = times.any_of(word for language in known for word in times.words_for("asking", language))
    stop = frozenset(plain(word) for language in known for word in lexemes.stop_words(language))
    if known & times.UNSPACED:
        return not re.sub(rf"[\W\d_]|{asking}" if asking else r"[\W\d_]", "", rest)
    is_asking = re.compile(asking or "(?!)")
    words = re.findall(r"[^\W\d_]+", rest)
    return all(len(word) == 1 or word in stop or is_asking.fullmatch(word) for word in words)


def recall_with_span(
    user: UserProfile, agent_id: str, request: RecallRequest, *, most: int
) -> tuple[list[Result], Span | None]:
    """Return the best results that a person may see, and the span that the query names.

    Results from the span come first. They fill the whole list, or half of it if the query also asks for something else.
    If the request has a span of its own, or is about one person, no span is returned.

    Args:
        user, agent_id, request: as in `recall`.
        most: the maximum number of results.
    """
    found = recall(user, agent_id, request, most=most)
    has_own = request.since or request.until or request.about
    if has_own or not (span := span_in(request.text, request.now_of(user))):
        return found, None
    then = said_in(user, agent_id, request, span, most=most)
    first = then if span.is_all else then[: (most + 1) // 2]
    known = {result.ref for result in first}
    others = [result for result in found if result.ref not in known]
    return [*sorted(first, key=lambda result: result.time), *others][:most], span


def said_in(user: UserProfile, agent_id: str, request: RecallRequest, span: Span, *, most: int) -> list[Result]:
    """Return results from a span: first those with the other words of the query, then moments, facts and turns.

    A constant number of statements.

    Args:
        user: the person.
        agent_id: the agent whose shards are searched.
        request: the search; only results of its kinds are returned.
        span: the span.
        most: the maximum number of results of each kind.
    """
    scores: dict[Key, float] = {}
    if not span.is_all:
        within = replace(request, text=span.rest, since=span.since, until=span.until)
        words = query_words(user, agent_id, span.rest, request.searched_vector)
        scores = rank(search(user, words, within, most), most)
    keys = dict.fromkeys([*scores, *_scanned(user, request, span, most)])
    found = read_found(user, span.since, request.as_of, list(keys))
    read = [found[key]._replace(score=scores.get(key, 0.0)) for key in keys if key in found]
    return [result for result in read if span.has(result.time)]


def _scanned(user: UserProfile, request: RecallRequest, span: Span, most: int) -> list[Key]:
    until = min(span.until, request.as_of) if request.as_of else span.until
    parameters: dict[str, int | datetime] = {
        "user": user.pk,
        "since": span.since,
        "until": until,
        "most": most,
        "scanned": MOST_SCANNED,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SCAN_SQL, parameters)
        return [(kind, (pk, sequence)) for kind, pk, sequence in cursor.fetchall() if kind in request.kinds]
