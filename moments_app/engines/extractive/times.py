"""Relative times said as dates: "yesterday" means nothing when it is read later.

Plain rules rather than a library: dateparser finds days in "we", "may" and "on the sun", and none in "two weekends
ago". They know English.
"""

import re
from collections.abc import Callable
from datetime import date, timedelta

MONTHS = (
    "January February March April May June July August September October November December".split()  # as dates are said
)
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_SHORT_DAYS = {"mon": 0, "tues": 1, "tue": 1, "wed": 2, "thurs": 3, "thur": 3, "thu": 3, "fri": 4, "sat": 5, "sun": 6}
_DAYS = {name: number for number, name in enumerate(_WEEKDAYS)} | _SHORT_DAYS
_SEASONS = {"spring": 5, "summer": 8, "autumn": 11, "fall": 11, "winter": 2}  # the month that each ends with
_NUMBERS = "a an one two three four five six seven eight nine ten eleven twelve".split()
_FEW = ("a few", "several", "a couple of", "a couple", "couple of", "some")
_SATURDAY = 5

_COUNT = "|".join((*(few.replace(" ", r"\ ") for few in _FEW), r"\d{1,2}", *_NUMBERS))
_NAMED = "|".join((*_DAYS, "weekend", "week", "month", "year", *_SEASONS, *map(str.lower, MONTHS)))
_MONTH = "|".join(MONTHS)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_RELATIVE = re.compile(
    rf"""\b(?P<before>(?:since|until|till|from|by|before|after|on|for|of|in|during|over|around|about)\ )?
    (?<!\bthe\ )(?<!\bmy\ )(?<!\bour\ )(?:
      (?P<near>the\ day\ before\ yesterday|the\ day\ after\ tomorrow|yesterday|tomorrow|today|tonight|last\ night|
        this\ (?:morning|afternoon|evening))(?:\ (?P<part>morning|afternoon|evening|night))?
      |(?P<which>last|this\ past|past|this\ coming|this|next)\ (?P<named>{_NAMED})
      |(?P<count>{_COUNT})\ (?P<unit>day|week|weekend|month|year)s?\ ago
    )\b(?!['’]s)
    (?P<said>,?\ (?:the\ )?(?:{_DAY}(?:\ of)?\ (?:{_MONTH})|(?:{_MONTH})\ {_DAY})\b)?""",
    re.IGNORECASE | re.VERBOSE,
)
_PREDICATE = re.compile(r" (?:is|was|has|had|will|won't|wasn't|isn't)\b")
_SHIFTS = {
    "the day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    "tomorrow": 1,
    "the day after tomorrow": 2,
}
_PARTS = {"last night": "night", "tonight": "evening"}


def dated(text: str, said_on: date) -> str:
    """Return a text in which what is relative to the day it was said on is a date.

    Args:
        text: in English.
        said_on: the day of its turn.
    """
    return _RELATIVE.sub(lambda match: _replaced(match, said_on), text)


def with_dates_beside(text: str, said_on: date) -> str:
    """Return a text with a date in brackets behind each time that is relative to the day it was said on.

    Args:
        text: in English.
        said_on: the day of its turn.
    """
    return _RELATIVE.sub(lambda match: _with_date(match, said_on), text)


def is_dated(text: str) -> bool:
    """Tell whether a text has a time that would be said as a date."""
    return bool(_RELATIVE.search(text))


def spoken_date(day: date) -> str:
    """Return a date as people say it: 7 May 2023."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def _with_date(match: re.Match[str], said_on: date) -> str:
    if match["said"]:
        return match[0]
    try:
        _preposition, time = _time(match, said_on)
    except (OverflowError, ValueError):  # before the year 1, or after 9999
        return match[0]
    return f"{match[0]} ({time})"


def _replaced(match: re.Match[str], said_on: date) -> str:
    try:
        preposition, time = _time(match, said_on)
    except (OverflowError, ValueError):  # before the year 1, or after 9999
        return match[0]
    time = match["said"].lstrip(", ") if match["said"] and _is_of_day(match) else time + (match["said"] or "")
    preposition = "" if _is_subject(match) else match["before"] or preposition
    said = f"{preposition} {time}".replace("  ", " ").strip()
    return said[0].upper() + said[1:] if match[0][0].isupper() else said


def _is_subject(match: re.Match[str]) -> bool:
    """Tell whether the time is what a sentence is about: "Last week was hard"."""
    return match.start() == 0 and bool(_PREDICATE.match(match.string, match.end()))


def _is_of_day(match: re.Match[str]) -> bool:
    """Tell whether it is of a day, and a date behind it of the same: "next Tuesday, 17 March"."""
    return bool(match["near"]) or (match["named"] or "").lower() in _DAYS


def _time(match: re.Match[str], said_on: date) -> tuple[str, str]:
    if match["near"]:
        return _near(match["near"].lower(), (match["part"] or "").lower(), said_on)
    if match["named"]:
        return _named(match["which"].lower().split()[-1], match["named"].lower(), said_on)
    return _ago(match["count"].lower(), match["unit"].lower(), said_on)


def _near(near: str, part: str, said_on: date) -> tuple[str, str]:
    day = spoken_date(said_on + timedelta(days=_SHIFTS.get(near, 0)))
    part = part or _PARTS.get(near, near.removeprefix("this ") if near.startswith("this ") else "")
    return "on", f"the {part} of {day}" if part else day


def _named(which: str, named: str, said_on: date) -> tuple[str, str]:
    """Return a time that has a name, such as "last Friday" or "next summer"."""
    step = {"last": -1, "past": -1, "next": 1}.get(which, 0)
    if named in _DAYS:
        return "on", spoken_date(_weekday(_DAYS[named], step, said_on))
    if named in _SEASONS:
        return "in", f"the {named} of {_year(_SEASONS[named], step, said_on)}"
    if named.title() in MONTHS:
        return "in", f"{named.title()} {_year(MONTHS.index(named.title()) + 1, step, said_on)}"
    return _PERIODS[named](step, said_on)


def _weekday(weekday: int, step: int, said_on: date) -> date:
    """Return the latest such day before, or the first after; "this Friday" may be today."""
    ahead = (weekday - said_on.weekday()) % 7
    if step < 0:
        return said_on + timedelta(days=ahead - 7)
    return said_on + timedelta(days=ahead or 7 * step)


def _year(ends: int, step: int, said_on: date) -> int:
    """Return the year of what ends with a month: the last that is over, or the first that is to come."""
    if step < 0:
        return said_on.year - (ends >= said_on.month)
    return said_on.year + (ends < said_on.month or (step > 0 and ends == said_on.month))


def _week(step: int, said_on: date) -> tuple[str, str]:
    return "in", f"the week {('of', 'after', 'before')[step]} {spoken_date(said_on)}"


def _weekend(step: int, said_on: date) -> tuple[str, str]:
    """Return a weekend by its Saturday; on a Sunday, this weekend's was yesterday."""
    this = said_on + timedelta(days=_SATURDAY - said_on.weekday())
    return "on", f"the weekend of {spoken_date(this + timedelta(days=7 * step))}"


def _month(step: int, said_on: date) -> tuple[str, str]:
    years, month = divmod(said_on.year * 12 + said_on.month - 1 + step, 12)
    return "in", f"{MONTHS[month]} {years}"


def _years(step: int, said_on: date) -> tuple[str, str]:
    return "in", str(date(said_on.year + step, 1, 1).year)


_PERIODS: dict[str, Callable[[int, date], tuple[str, str]]] = {
    "week": _week,
    "weekend": _weekend,
    "month": _month,
    "year": _years,
}


def _ago(count: str, unit: str, said_on: date) -> tuple[str, str]:
    if count in _FEW:
        return "", f"{count} {unit}s before {spoken_date(said_on)}"
    number = int(count) if count.isdigit() else max(1, _NUMBERS.index(count) - 1)
    if unit == "day":
        return "on", spoken_date(said_on - timedelta(days=number))
    if unit == "week":
        return "around", spoken_date(said_on - timedelta(weeks=number))
    return _PERIODS[unit](-number, said_on)
