"""Days in sentences: add dates in brackets to relative times, and find when statements start or end."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, time, tzinfo
from functools import lru_cache
from threading import Lock

from cachetools import LRUCache, cached

from moments_app.engines import times
from moments_app.engines.numbers import in_digits
from moments_app.engines.statements.open_times import without_open
from moments_app.engines.times import Found, Time
from sessions_app.lexemes import DEFAULT

ANY_DAY = date(2001, 6, 1)
KNOWN = 20_000  # texts


def with_dates(text: str, said_on: date) -> str:
    """Return a text with the date in brackets after each time that is relative to the day of the text."""
    result, end = "", 0
    for place, written in _dates(text, said_on):
        result += f"{text[end:place]} [{written}]"
        end = place
    return result + text[end:]


# Keyed by Python's hash, so that no text is cached. The contexts of a person have many turns in common.
@cached(LRUCache(KNOWN), key=lambda *pair: hash(pair), lock=Lock())
def _dates(text: str, said_on: date) -> Sequence[tuple[int, str]]:
    """Return the dates of a text's relative times, and where to insert them."""
    return [(found.end, _written(found)) for found in times.relative_times(text, said_on)]


def is_dated(text: str) -> bool:
    """Return whether a text names a time that is relative to the day of the text."""
    return bool(times.relative_times(text, ANY_DAY))


def is_to_come(text: str) -> bool:
    """Return whether a text names a future day relative to the day of the text."""
    return any(found.time.first > ANY_DAY for found in times.relative_times(text, ANY_DAY, is_dated=True))


def spoken_date(day: date) -> str:
    """Return a date in spoken form: 7 May 2023."""
    return f"{day.day} {times.month_name(day.month)} {day.year}"


def since_in(text: str, said_at: datetime, zone: tzinfo) -> datetime | None:
    """Return when the day starts that a sentence names; None if it names no valid day.

    Args:
        text: a text with dates in brackets after relative times.
        said_at: the time of the text. A day without a year is the last one before it. Later days are ignored.
        zone: the person's time zone.
    """
    digits, languages = _read(text)
    said_on = said_at.astimezone(zone).date()
    first = _first(times.times_in(digits, languages, (times.ABSOLUTE, times.YEAR), said_on))
    return min(datetime.combine(first.time.first, time(0), zone), said_at) if first else None


@lru_cache(maxsize=2_000)
def planned_in(text: str, said_on: date) -> Time | None:
    """Return the next time at which a plan is over; None if it names no such time, as in "every Monday".

    Args:
        text: the text of a plan. A weekday, or a day without a year, is the first one after `said_on`.
        said_on: the day of the text.
    """
    digits, languages = _read(text)
    named = times.times_in(digits, languages, (times.RELATIVE, times.ABSOLUTE, times.ASKED), said_on)
    found = [replace(one, time=one.time.after(said_on)) for one in without_open(digits, named, languages)]
    first = _first(one for one in found if one.time.end > said_on)
    return first.time if first else None


def plan_ends(text: str, said_at: datetime, zone: tzinfo) -> datetime | None:
    """Return when the day of a plan ends in the person's time zone; None if it names no day."""
    planned = planned_in(text, said_at.astimezone(zone).date())
    return datetime.combine(planned.end, time(0), zone) if planned else None


def plan_in(text: str, said_at: datetime, zone: tzinfo) -> str:
    """Return the time of a plan in spoken form; blank if no day is named."""
    planned = planned_in(text, said_at.astimezone(zone).date())
    return f"planned for {_in_english(planned)}" if planned else ""


def _read(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text normalized for finding times, and the languages to try."""
    languages = tuple(dict.fromkeys((*times.likely_languages(text), DEFAULT)))
    return in_digits(text, languages), languages


def _first(found: Iterable[Found]) -> Found | None:
    return min(found, key=lambda one: (one.start, -one.end), default=None)


def _written(found: Found) -> str:
    return _in_english(found.time) if found.language == DEFAULT else _in_digits(found.time)


def _in_english(named: Time) -> str:
    """Return a time in spoken English."""
    if named.unit in ("week", "weekend") and not named.around:
        return f"{named.unit} of {spoken_date(named.first)}"
    if named.unit == "month":
        return f"{times.month_name(named.first.month)} {named.first.year}"
    if named.unit == "season":
        return f"{named.name} {named.end.year}"
    if named.unit == "year":
        return str(named.first.year)
    return f"around {spoken_date(named.around)}" if named.around else spoken_date(named.first)


def _in_digits(named: Time) -> str:
    if named.unit == "month":
        return f"{named.first:%Y-%m}"
    if named.unit == "year":
        return f"{named.first:%Y}"
    if named.unit in ("day", "part") or named.around:
        return f"{named.around or named.first}"
    return f"{named.first} – {named.last}"
