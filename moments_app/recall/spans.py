"""Find times in a query: "yesterday" or "on 17 November" becomes a span of days in the person's time zone.

A future time is no span, and neither is "today" in "What should I cook today?".
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from moments_app.engines import times
from moments_app.engines.numbers import in_digits, plain
from moments_app.engines.times import Time
from sessions_app import lexemes

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


@dataclass(frozen=True)
class Span:
    """A span of time that a query names, and the other words of the query.

    Args:
        since: the start, with a time zone.
        until: the end, exclusive.
        named: the words that name the span, in lower case.
        rest: the other words of the query.
        is_all: whether the query asks for nothing else.
    """

    since: datetime
    until: datetime
    named: frozenset[str] = frozenset()
    rest: str = ""
    is_all: bool = True

    def has(self, moment: datetime) -> bool:
        """Return whether a time lies in the span."""
        return self.since <= moment < self.until


def span_in(text: str, now: datetime) -> Span | None:
    """Return the first span of past time that a query names; None if it names none or is too long to be a question.

    Args:
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
    named = frozenset(re.findall(r"\w+", digits[first:last].lower()))
    return None if is_under_way and not is_all else Span(begin, end, named, rest.strip(), is_all)


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
