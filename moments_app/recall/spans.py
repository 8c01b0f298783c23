"""Times in a query: "yesterday" or "on 17 November" becomes a span of days where the person is.

Words come from `times.txt`, in the languages that the query may be in. A month or a weekday counts only beside a word
such as "in" or "last", or beside a day's number, so that "may" and "sun" are no times. What is still to come is none
either, and "today" is none in "What should I cook today?".
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from functools import cache, partial
from pathlib import Path

from moments_app.engines.numbers import in_digits, plain
from sessions_app import lexemes

_SCRIPTS = (
    ("ru uk", "\u0400-\u052f"),
    ("ar fa", "\u0600-\u06ff"),
    ("zh ja", "\u3040-\u30ff\u3400-\u9fff"),
    ("ko", "\uac00-\ud7a3"),
    ("hi", "\u0900-\u097f"),
    ("el", "\u0370-\u03ff"),
    ("hy", "\u0530-\u058f"),
    ("th", "\u0e00-\u0e7f"),
    ("ta", "\u0b80-\u0bff"),
)
_BY_SCRIPT = tuple((languages.split(), re.compile(f"[{letters}]")) for languages, letters in _SCRIPTS)
_UNSPACED = frozenset("zh ja th".split())
_JOINED = frozenset("ko tr fi hu".split())  # add endings to words
LONGEST = 300  # characters of a query; longer texts mention times but don't ask about them
_WEEK = timedelta(days=7, hours=1)  # with the hour that the clock may be put back
_LATIN_SHORTEST = 5  # minimum characters of a match in a language that the query is probably not in
_DIGIT_MONTHS = {"zh": r"(\d{1,2})月", "ja": r"(\d{1,2})月", "ko": r"(\d{1,2})월"}
_NUMERIC = re.compile(
    r"(?<!\d)(?P<iso>(?P<y>20\d\d|19\d\d)[-/.](?P<m>\d\d?)[-/.](?P<d>\d\d?))(?!\d)"
    r"|(?<![\d.])(?P<d2>\d\d?)\.\s?(?P<m2>\d\d?)\.(?:\s?(?P<y2>(?:20|19)\d\d))?(?![\d])"
    r"|(?:(?P<y3>\d{4})\s?[年년]\s?)?(?<!\d)(?P<m3>\d\d?)\s?[月월]\s?(?P<d3>\d\d?)\s?[日号號일]"
)
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
        since: where it begins, aware.
        until: where it ends; this moment is no part of it.
        rest: the words of the query beside it.
        is_all: the query asks for nothing else.
    """

    since: datetime
    until: datetime
    rest: str = ""
    is_all: bool = True

    def has(self, moment: datetime) -> bool:
        """Tell whether a time lies in the span."""
        return self.since <= moment < self.until


def span_in(text: str, now: datetime) -> Span | None:
    """Return the first span of past time that a query names; None if it names none or is too long to be a question.

    Args:
        text: the query.
        now: the time where the person is.
    """
    if len(text) > LONGEST:
        return None
    likely = _likely_languages(text)
    digits = in_digits(text, likely)
    found = _first(digits, likely, now)
    if found is None and not lexemes.certain_language(text):
        others = [language for language in _words() if language not in likely and _is_latin(language)]
        found = _first(digits, others, now, _LATIN_SHORTEST)
    if found is None:
        return None
    (begin, end), (first, last) = found
    rest = f"{digits[:first]} {digits[last:]}"
    is_all = _asks_nothing_else(rest, likely)
    is_under_way = end > now and end - begin <= _WEEK
    return None if is_under_way and not is_all else Span(begin, end, rest.strip(), is_all)


# --- languages ---


def _likely_languages(text: str) -> tuple[str, ...]:
    """Return the languages that a query may be in: those of its letters, or of its words."""
    of_script = [language for languages, letters in _BY_SCRIPT if letters.search(text) for language in languages]
    return (*of_script, *lexemes.likely_languages(text))


def _is_latin(language: str) -> bool:
    return all(language not in languages for languages, _ in _BY_SCRIPT)


@cache
def _words() -> Mapping[str, Mapping[str, list[str]]]:
    """Return the words of `times.txt` in plain letters, by language and kind."""
    words: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for line in (Path(__file__).parent / "times.txt").read_text().splitlines():
        if not line.startswith("#"):
            head, _, listed = line.partition(":")
            language, kind = head.split(" ", 1)
            write = in_digits if language in _UNSPACED else _plain
            words[language][kind] = [write(word, ()) for word in listed.strip().split("|") if word]
    return words


def _plain(text: str, _languages: Collection[str]) -> str:
    return plain(text)


# --- finding ---

Bounds = tuple[datetime, datetime]
Found = tuple[Bounds, tuple[int, int]]  # and the places of its words


def _first(text: str, languages: Iterable[str], now: datetime, shortest: int = 0) -> Found | None:
    """Return the leftmost span; of those that begin at one place, the one with most words."""
    spans: list[Found] = [*_numeric(text, now)]
    for language in languages:
        for pattern, bounds in _patterns(language):
            for match in pattern.finditer(text):
                if len(match[0]) >= shortest and (span := _past(bounds, match, now)):
                    spans.append((span, match.span()))
    return min(spans, key=lambda span: (span[1][0], -span[1][1]), default=None)


def _past(bounds: "Reader", match: re.Match[str], now: datetime) -> Bounds | None:
    """Return the span that a match names, if there is such a day and it is not still to come."""
    try:
        span = bounds(match, now)
    except (OverflowError, ValueError):
        return None
    return span if span and span[0] <= now else None


def _numeric(text: str, now: datetime) -> Iterator[Found]:
    for match in _NUMERIC.finditer(text):
        named = {name[0]: int(number) for name, number in match.groupdict().items() if number and name != "iso"}
        if span := _past(partial(_named_day, named), match, now):
            yield span, match.span()


def _named_day(named: Mapping[str, int], _match: re.Match[str], now: datetime) -> "Bounds | None":
    return _day(now, named["d"], named["m"], named.get("y"))


Reader = Callable[[re.Match[str], datetime], "Bounds | None"]


@cache
def _patterns(language: str) -> tuple[tuple[re.Pattern[str], Reader], ...]:
    """Return the patterns of a language's times, each with what reads its matches."""
    words = _words().get(language, {})
    if not words:
        return ()
    return tuple(
        (_compiled(pattern, language), reader)
        for pattern, reader in (*_relative(words), *_months(words, language), *_weekdays(words, language))
    )


def _compiled(pattern: str, language: str) -> re.Pattern[str]:
    if language in _UNSPACED:
        return re.compile(pattern)
    return re.compile(rf"(?<!\w)(?:{pattern})" + ("" if language in _JOINED else r"(?!\w)"))


def _any(words: Iterable[str]) -> str:
    longest_first = sorted({word for word in words if word}, key=lambda word: (-len(word), word))
    return "|".join(re.escape(word).replace(r"\*", r"\w*") for word in longest_first)


def _relative(words: Mapping[str, list[str]]) -> Iterator[tuple[str, Reader]]:
    """Yield the patterns of times that count from today."""
    for kind, phrases in words.items():
        unit, _, number = kind.partition(" ")
        if unit in _UNITS and phrases:
            yield _any(phrases), partial(_from_today, unit, int(number))
        elif unit == "ago":
            pattern = "|".join(re.escape(phrase).replace(r"\#", "#").replace("#", r"(\d{1,3})") for phrase in phrases)
            yield pattern, partial(_ago, number)
        elif unit == "part":
            yield _any(phrases), partial(_part, number)


def _from_today(unit: str, number: int, _match: re.Match[str], now: datetime) -> Bounds:
    return _UNITS[unit](now, number)


def _ago(unit: str, match: re.Match[str], now: datetime) -> Bounds:
    return _UNITS[unit](now, -int(next(filter(None, match.groups()))))


def _months(words: Mapping[str, list[str]], language: str) -> Iterator[tuple[str, Reader]]:
    """Yield the patterns of months, alone and with a day's number."""
    names = {name: month for month in range(1, 13) for name in words.get(f"month_name {month}", ())}
    if pattern := _DIGIT_MONTHS.get(language):
        yield rf"(?<!\d){pattern}(?!\s?\d)", lambda match, now: _month(now, int(match[1]), None)
    if not names:
        return
    month, in_ = rf"(?P<month>{_any(names)})", _any(words.get("in", ()))
    year = r"(?:,? (?:de |del )?(?P<year>(?:19|20)\d\d))?"

    def day(match: re.Match[str], now: datetime) -> Bounds | None:
        return _day(now, int(match["day"]), names[match["month"]], _number(match["year"]))

    def whole(match: re.Match[str], now: datetime) -> Bounds | None:
        return _month(now, names[match["month"]], _number(match["year"]))

    yield rf"(?P<day>\d\d?)(?:st|nd|rd|th|er|\.|º|ª)?\s(?:of |de |del |d')?{month}{year}", day
    on = r"(?:on |since |the )" if language == "en" else ""
    yield rf"{on}{month} (?P<day>\d\d?)(?:st|nd|rd|th|\.)?(?!\d){year}", day
    if language == "en":
        yield rf"{month} (?P<day>\d\d?)(?:st|nd|rd|th){year}", day
    if in_:
        yield rf"(?:{in_})\s?{month}{year}", whole
    elif "in" in words:
        yield rf"{month}{year}", whole


def _weekdays(words: Mapping[str, list[str]], language: str) -> Iterator[tuple[str, Reader]]:
    """Yield the patterns of weekdays: the latest before today."""
    names = {name: day for day in range(7) for name in words.get(f"weekday {day}", ())}
    if not names:
        return
    day, last, on = rf"(?P<day>{_any(names)})", _any(words.get("last", ())), _any(words.get("on", ()))

    def latest(match: re.Match[str], now: datetime) -> Bounds | None:
        return _weekday(now, names[match["day"]])

    def of_last_week(match: re.Match[str], now: datetime) -> Bounds | None:
        start = now.date() - timedelta(days=now.weekday() + 7 - names[match["day"]])
        return _bounds(now, start, start + timedelta(days=1))

    before = of_last_week if language in ("zh", "ja", "ko") else latest
    optional_on = rf"(?:(?:{on})\s)?" if on else ""
    if last:
        yield rf"{optional_on}(?:{last})\s?{day}", before
        yield rf"{optional_on}{day}\s?(?:{last})", before
    if on or "on" in words or language in _UNSPACED:
        yield rf"(?:{on})\s?{day}" if on else day, latest


# --- spans of days ---


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _bounds(now: datetime, first: date, end: date) -> Bounds:
    """Return the span from one day's beginning to another's, where the person is."""
    return _at(first, time(0), now.tzinfo), _at(end, time(0), now.tzinfo)


def _at(day: date, clock: time, zone: tzinfo | None) -> datetime:
    return datetime.combine(day, clock, zone)


def _days(now: datetime, number: int) -> Bounds:
    first = now.date() + timedelta(days=number)
    return _bounds(now, first, first + timedelta(days=1))


def _weeks(now: datetime, number: int) -> Bounds:
    first = now.date() + timedelta(days=7 * number - now.weekday())
    return _bounds(now, first, first + timedelta(days=7))


def _weekends(now: datetime, number: int) -> Bounds:
    """Return the latest weekend that has begun, or one before it."""
    saturday = now.date() - timedelta(days=(now.weekday() - 5) % 7) + timedelta(days=7 * (number + 1))
    return _bounds(now, saturday, saturday + timedelta(days=2))


def _months_from(now: datetime, number: int) -> Bounds:
    first = now.year * 12 + now.month - 1 + number
    return _bounds(now, date(first // 12, first % 12 + 1, 1), date((first + 1) // 12, (first + 1) % 12 + 1, 1))


def _years(now: datetime, number: int) -> Bounds:
    return _bounds(now, date(now.year + number, 1, 1), date(now.year + number + 1, 1, 1))


_UNITS: dict[str, Callable[[datetime, int], Bounds]] = {
    "day": _days,
    "week": _weeks,
    "weekend": _weekends,
    "month": _months_from,
    "year": _years,
}


def _part(part: str, _match: re.Match[str], now: datetime) -> Bounds:
    """Return a part of today, or the night before it."""
    today = now.date()
    if part == "night":
        return _at(today - timedelta(days=1), _EVENING, now.tzinfo), _at(today, _NIGHTS_END, now.tzinfo)
    first, last = _PARTS[part]
    return _at(today, first, now.tzinfo), _at(today, last, now.tzinfo)


def _day(now: datetime, day: int, month: int, year: int | None) -> Bounds | None:
    """Return a day; without a year, the latest such day that is not to come."""
    first = date(year or now.year, month, day)
    if year is None and first > now.date():
        first = first.replace(year=now.year - 1)
    return _bounds(now, first, first + timedelta(days=1))


def _month(now: datetime, month: int, year: int | None) -> Bounds | None:
    """Return a month; without a year, the latest such month that is not to come."""
    year = year or (now.year if month <= now.month else now.year - 1)
    return _months_from(_at(date(year, month, 1), time(0), now.tzinfo), 0)


def _weekday(now: datetime, weekday: int) -> Bounds:
    return _days(now, -((now.weekday() - weekday - 1) % 7 + 1))


# --- the rest of a query ---


def _asks_nothing_else(rest: str, languages: Collection[str]) -> bool:
    """Tell whether the words beside a time only ask what was said."""
    known = {*languages, lexemes.DEFAULT}
    asking = [word for language in known for word in _words().get(language, {}).get("asking", ())]
    stop = frozenset(plain(word) for language in known for word in lexemes.stop_words(language))
    if known & _UNSPACED:
        return not re.sub(rf"[\W\d_]|{_any(asking)}" if asking else r"[\W\d_]", "", rest)
    is_asking = re.compile(_any(asking) or "(?!)")
    words = re.findall(r"[^\W\d_]+", rest)
    return all(len(word) == 1 or word in stop or is_asking.fullmatch(word) for word in words)
