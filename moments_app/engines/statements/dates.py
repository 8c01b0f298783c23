"""Add dates in brackets to relative times in sentences, and find when a fact starts and when a plan ends."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, time, tzinfo
from functools import cache, lru_cache

from moments_app.engines import times
from moments_app.engines.times import Time, TimeMatch
from moments_app.engines.words import in_digits
from sessions_app.lexemes import DEFAULT
from sessions_app.process_cache import cached_by_hash

ANY_DAY = date(2001, 6, 1)
CACHED_TEXTS = 20_000  # maximum cached texts
_HABITUAL = frozenset("fr it".split())  # "le lundi" is every Monday
_DATE = re.compile(r"\s?\[[^\]]*\]")  # a date in brackets after a relative time
_BETWEEN = " ,()"
_DASHES = frozenset("-–—")

Languages = tuple[str, ...]


def with_dates(text: str, said_on: date) -> str:
    """Return a text with a date in brackets after each relative time, such as "yesterday [6 May 2023]"."""
    result, end = "", 0
    for place, written in _dates(text, said_on):
        result += f"{text[end:place]} [{written}]"
        end = place
    return result + text[end:]


# Cached, because the contexts of a person share many turns.
@cached_by_hash(CACHED_TEXTS)
def _dates(text: str, said_on: date) -> Sequence[tuple[int, str]]:
    """Return the dates of a text's relative times, and where to insert them."""
    return [(found.end, _written(found)) for found in times.relative_times(text, said_on)]


def has_relative_time(text: str) -> bool:
    """Return whether a text contains a relative time, such as "yesterday"."""
    return bool(times.relative_times(text, ANY_DAY))


def has_future_time(text: str) -> bool:
    """Return whether a text contains a relative time in the future, such as "tomorrow"."""
    return any(found.time.first > ANY_DAY for found in times.relative_times(text, ANY_DAY, is_dated=True))


def date_in_words(day: date) -> str:
    return f"{day.day} {times.month_name(day.month)} {day.year}"


def start_in(text: str, said_at: datetime, zone: tzinfo) -> datetime | None:
    """Return the start of the first day mentioned in a sentence, or None. Never return a time after `said_at`.

    Args:
        text: A text with dates in brackets after relative times.
        said_at: The time of the text. A day without a year means the latest such day up to this time.
    """
    digits, languages = _read(text)
    said_on = said_at.astimezone(zone).date()
    first = _first(times.times_in(digits, languages, (times.ABSOLUTE, times.YEAR), said_on))
    return min(datetime.combine(first.time.first, time(0), zone), said_at) if first else None


@lru_cache(maxsize=2_000)
def planned_in(text: str, said_on: date) -> Time | None:
    """Return the next time mentioned in a plan. Ignore recurring times such as "every Monday".

    A weekday, or a day without a year, means the first such day after `said_on`.
    """
    digits, languages = _read(text)
    named = times.times_in(digits, languages, (times.RELATIVE, times.ABSOLUTE, times.ASKED), said_on)
    found = [replace(one, time=one.time.after(said_on)) for one in possible_ends(digits, named, languages)]
    first = _first(one for one in found if one.time.end > said_on)
    return first.time if first else None


def plan_ends(text: str, said_at: datetime, zone: tzinfo) -> datetime | None:
    """Return the end of the time mentioned in a plan, or None if there is none. `zone` is the person's time zone."""
    planned = planned_in(text, said_at.astimezone(zone).date())
    return datetime.combine(planned.end, time(0), zone) if planned else None


def plan_text(text: str, said_at: datetime, zone: tzinfo) -> str:
    """Return the time of a plan in words, such as "planned for 7 May 2023", or an empty string if it has no time."""
    planned = planned_in(text, said_at.astimezone(zone).date())
    return f"planned for {_in_english(planned)}" if planned else ""


def _read(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with its numbers as digits, and its likely languages."""
    languages = tuple(dict.fromkeys((*times.likely_languages(text), DEFAULT)))
    return in_digits(text, languages), languages


def _first(found: Iterable[TimeMatch]) -> TimeMatch | None:
    return min(found, key=lambda one: (one.start, -one.end), default=None)


def _written(found: TimeMatch) -> str:
    return _in_english(found.time) if found.language == DEFAULT else _in_digits(found.time)


def _in_english(named: Time) -> str:
    if named.unit in ("week", "weekend") and not named.around:
        return f"{named.unit} of {date_in_words(named.first)}"
    if named.unit == "month":
        return f"{times.month_name(named.first.month)} {named.first.year}"
    if named.unit == "season":
        return f"{named.name} {named.end.year}"
    if named.unit == "year":
        return str(named.first.year)
    return f"around {date_in_words(named.around)}" if named.around else date_in_words(named.first)


def _in_digits(named: Time) -> str:
    if named.unit == "month":
        return f"{named.first:%Y-%m}"
    if named.unit == "year":
        return f"{named.first:%Y}"
    if named.unit in ("day", "part") or named.around:
        return f"{named.around or named.first}"
    return f"{named.first} – {named.last}"


# --- start times and recurring times, such as "from tomorrow" and "every Monday" ---


def possible_ends(digits: str, found: Iterable[TimeMatch], languages: Languages) -> list[TimeMatch]:
    """Return the times that may be the end of a period. "From 3 May to 5 May" gives the 5th. Skip recurring times.

    Args:
        digits: The text, as returned by `in_digits`.
    """
    dated = [replace(one, end=_end_of_date(digits, one.end)) for one in found]
    whole = [one for one in dated if not any(_is_part(one, other) for other in dated)]
    ends = [one for one in whole if not _is_beginning(digits, one, whole, languages)]
    return [one for one in ends if not _recurs(digits, one, languages)]


def _is_part(one: TimeMatch, other: TimeMatch) -> bool:
    """Return whether a time is part of a longer one, such as "tomorrow" in "the day after tomorrow"."""
    return other.start <= one.start and one.end <= other.end and one.end - one.start < other.end - other.start


def _end_of_date(digits: str, end: int) -> int:
    date = _DATE.match(digits, end)
    return date.end() if date else end


def _is_beginning(digits: str, one: TimeMatch, others: Iterable[TimeMatch], languages: Languages) -> bool:
    begin, until = _pattern("from", languages), _pattern("until", languages)
    if begin.match(digits, one.start) or _stands_before(begin, digits, one.start):
        return True
    gaps = (digits[one.end : other.start].strip(_BETWEEN) for other in others if other.start > one.end)
    return any(gap in _DASHES or until.fullmatch(gap) for gap in gaps) or bool(
        _pattern("onward", languages).match(digits[one.end :].lstrip(_BETWEEN))
    )


def _recurs(digits: str, one: TimeMatch, languages: Languages) -> bool:
    if not one.time.recurs or _stands_before(_pattern("until", languages), digits, one.start):
        return False
    is_habitual = one.time.recurs == "week" and one.language in _HABITUAL
    return is_habitual or bool(_pattern("every", languages).search(digits))


def _stands_before(words: re.Pattern[str], digits: str, start: int) -> bool:
    return any(not digits[match.end() : start].strip(_BETWEEN) for match in words.finditer(digits, 0, start))


@cache
def _pattern(kind: str, languages: Languages) -> re.Pattern[str]:
    """Return a pattern for the words of a kind (`from`, `until`, `onward` or `every`) in some languages."""
    return re.compile("|".join(filter(None, (_of_language(kind, language) for language in languages))) or "(?!)")


def _of_language(kind: str, language: str) -> str:
    words = times.any_of(times.words_for(kind, language))
    if not words or language in times.UNCUT:
        return words
    if kind == "onward" and language in times.JOINED:
        return rf"\w*?\W?(?:{words})"
    return rf"(?<!\w)(?:{words})(?!\w)"
