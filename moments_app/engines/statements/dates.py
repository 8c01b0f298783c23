"""Days that a sentence names: relative ones get a date in brackets, absolute ones say since when it holds.

Plain rules rather than a library: dateparser finds days in "we", "may" and "on the sun", and none in "two weekends
ago".
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

MONTHS = "January February March April May June July August September October November December".split()
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_SHORT_DAYS = {"mon": 0, "tues": 1, "tue": 1, "wed": 2, "thurs": 3, "thur": 3, "thu": 3, "fri": 4, "sat": 5, "sun": 6}
_DAYS = {name: number for number, name in enumerate(_WEEKDAYS)} | _SHORT_DAYS
_SEASONS = {"spring": 5, "summer": 8, "autumn": 11, "fall": 11, "winter": 2}  # the month that each ends with
_NUMBERS = "a an one two three four five six seven eight nine ten eleven twelve".split()
_SATURDAY = 5
_MONTH = "|".join(MONTHS)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_RELATIVE = re.compile(
    rf"""(?<!\bthe\ )(?<!\bmy\ )(?<!\bour\ )\b(?:
      (?P<near>the\ day\ before\ yesterday|the\ day\ after\ tomorrow|yesterday|tomorrow|today|tonight|last\ night|
        this\ (?:morning|afternoon|evening))(?:\ (?:morning|afternoon|evening|night))?
      |(?P<which>last|this\ past|past|this\ coming|this|next)
        \ (?P<named>{"|".join((*_DAYS, "weekend", "week", "month", "year", *_SEASONS, *map(str.lower, MONTHS)))})
      |(?P<count>\d{{1,2}}|{"|".join(_NUMBERS)})\ (?P<unit>day|week|weekend|month|year)s?\ ago
    )\b(?!['’]s)(?P<said>,?\ (?:the\ )?(?:{_DAY}(?:\ of)?\ (?:{_MONTH})|(?:{_MONTH})\ {_DAY})\b)?""",
    re.IGNORECASE | re.VERBOSE,
)
_SHIFTS = {
    **{"the day before yesterday": -2, "yesterday": -1, "last night": -1, "tomorrow": 1, "the day after tomorrow": 2},
    **{"vorgestern": -2, "gestern": -1, "morgen": 1, "übermorgen": 2},
    **{"anteayer": -2, "ayer": -1, "mañana": 1, "pasado mañana": 2},
    **{"avant-hier": -2, "hier": -1, "demain": 1, "après-demain": 2},
    **{"前天": -2, "昨天": -1, "昨晚": -1, "明天": 1, "后天": 2},
    **{"позавчера": -2, "вчера": -1, "завтра": 1, "послезавтра": 2},
}
# Single days in other languages; "morgen" and "mañana" are mornings after some words, "hier" is "here" in German.
_ELSEWHERE = re.compile(
    r"(?:\b(?:vorgestern|gestern|übermorgen|(?<!heute )(?<!am )(?<!jeden )(?<!guten )(?<!der )(?<!den )morgen"
    r"|anteayer|ayer|pasado mañana|(?<!la )(?<!esta )(?<!cada )mañana|avant-hier|hier(?=,? (?:matin"
    r"|soir|j'|je|nous|on)\b)|demain"
    r"|après-demain|позавчера|вчера|завтра|послезавтра)\b|前天|昨天|昨晚|明天|后天)",
    re.IGNORECASE,
)
_NEXT_DAY = re.compile(
    r"\b(?:(?P<next>nächste[nr]?|kommende[nr]?|el próximo|следующ\w+)|(?P<last>letzte[nr]?|vergangene[nr]?|el pasado"
    r"|прошл\w+)) (?P<day>montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag|lunes|martes|miércoles|jueves"
    r"|viernes|sábado|domingo|понедельник|вторник|среду|четверг|пятницу|субботу|воскресенье)\b"
    r"|\b(?P<jour>lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche) (?:(?P<prochain>prochain)|dernier)\b"
    r"|(?:(?P<xia>下)|上)(?:个)?(?:周|星期|礼拜)(?P<zhou>[一二三四五六日天])",
    re.IGNORECASE,
)
_DAYS_ELSEWHERE = {
    name: number % 7
    for names in (
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
        "lunes martes miércoles jueves viernes sábado domingo",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "понедельник вторник среду четверг пятницу субботу воскресенье",
    )
    for number, name in enumerate(names.split())
}
_ABSOLUTE = re.compile(
    rf"\b(?P<iso>\d{{4}}-\d\d(?:-\d\d)?)\b"
    rf"|\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<month>{_MONTH})(?:,? (?P<year>\d{{4}}))?\b"
    rf"|\b(?P<month2>{_MONTH}) (?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year2>\d{{4}}))?\b(?!\d)"
    rf"|\b(?:in|since|from) (?P<month3>{_MONTH})(?: (?P<year3>\d{{4}}))?\b"
    rf"|\b(?:in|since|from) (?P<year4>(?:19|20)\d\d)\b",
    re.IGNORECASE,
)


def with_dates(text: str, said_on: date) -> str:
    """Return a text with the date in brackets behind each time that is relative to the day it was said on."""

    def beside(match: re.Match[str]) -> str:
        try:
            time = _time(match, said_on)
        except (OverflowError, ValueError):  # before the year 1, or after 9999
            return match[0]
        return f"{match[0]} [{time}]" if time else match[0]

    for pattern in (_RELATIVE, _ELSEWHERE, _NEXT_DAY):
        text = pattern.sub(beside, text)
    return text


def spoken_date(day: date) -> str:
    """Return a date as people say it: 7 May 2023."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def is_dated(text: str) -> bool:
    """Tell whether a text names a time that is relative to the day it was said on."""
    return bool(_RELATIVE.search(text) or _ELSEWHERE.search(text) or _NEXT_DAY.search(text))


def since_in(text: str, said_at: datetime) -> datetime | None:
    """Return the day that a sentence names; None where it names none, or one that can't be.

    Args:
        text: in English, or with a date in brackets.
        said_at: when it was said. A day without a year is the last one before that, and none is later.
    """
    found = _ABSOLUTE.search(text)
    try:
        day = _day(found, said_at) if found else None
    except ValueError:  # no such day
        return None
    return min(day, said_at) if day else None


def _time(match: re.Match[str], said_on: date) -> str:
    """Return what a relative time stands for, in English as people say it; blank where a date stands beside it."""
    if match.re is _ELSEWHERE:
        return f"{said_on + timedelta(days=_SHIFTS[match[0].lower()])}"
    if match.re is _NEXT_DAY:
        return _next_day(match, said_on)
    if match["said"]:
        return ""
    if match["near"]:
        return spoken_date(said_on + timedelta(days=_SHIFTS.get(match["near"].lower(), 0)))
    if match["named"]:
        step = {"last": -1, "past": -1, "next": 1}.get(match["which"].lower().split()[-1], 0)
        return _named(step, match["named"].lower(), said_on)
    return _ago(match["count"].lower(), match["unit"].lower(), said_on)


def _next_day(match: re.Match[str], said_on: date) -> str:
    name = (match["day"] or match["jour"] or "").lower()
    if zhou := match["zhou"]:  # of the week after or before, which begins on Monday
        monday = said_on - timedelta(days=said_on.weekday()) + timedelta(weeks=1 if match["xia"] else -1)
        return f"{monday + timedelta(days=min('一二三四五六日天'.index(zhou), 6))}"
    is_next = match["next"] or match["prochain"]
    return f"{_weekday(_DAYS_ELSEWHERE[name], 1 if is_next else -1, said_on)}"


def _named(step: int, named: str, said_on: date) -> str:
    """Return a time that has a name, such as "last Friday" or "next summer"."""
    if named in _DAYS:
        return spoken_date(_weekday(_DAYS[named], step, said_on))
    if named in _SEASONS:
        return f"{named} {_year(_SEASONS[named], step, said_on)}"
    if named.title() in MONTHS:
        return f"{named.title()} {_year(MONTHS.index(named.title()) + 1, step, said_on)}"
    return _PERIODS[named](step, said_on)


def _weekday(weekday: int, step: int, said_on: date) -> date:
    """Return the latest such day before, or the first after; "this Friday" may be today."""
    ahead = (weekday - said_on.weekday()) % 7
    if step < 0:
        return said_on + timedelta(days=ahead - 7)
    return said_on + timedelta(days=ahead or 7 * step)


def _year(ends: int, step: int, said_on: date) -> int:
    """Return the year of the last, current or next season or month, by the month in which it ends."""
    if step < 0:
        return said_on.year - (ends >= said_on.month)
    return said_on.year + (ends < said_on.month or (step > 0 and ends == said_on.month))


def _week(step: int, said_on: date) -> str:
    return f"week of {spoken_date(said_on - timedelta(days=said_on.weekday()) + timedelta(weeks=step))}"


def _weekend(step: int, said_on: date) -> str:
    """Return a weekend by its Saturday; on a Sunday, this weekend's was yesterday."""
    this = said_on + timedelta(days=_SATURDAY - said_on.weekday())
    return f"weekend of {spoken_date(this + timedelta(days=7 * step))}"


def _month(step: int, said_on: date) -> str:
    years, month = divmod(said_on.year * 12 + said_on.month - 1 + step, 12)
    return f"{MONTHS[month]} {years}"


def _years(step: int, said_on: date) -> str:
    return str(date(said_on.year + step, 1, 1).year)


_PERIODS: dict[str, Callable[[int, date], str]] = {
    "week": _week,
    "weekend": _weekend,
    "month": _month,
    "year": _years,
}


def _ago(count: str, unit: str, said_on: date) -> str:
    number = int(count) if count.isdigit() else max(1, _NUMBERS.index(count) - 1)
    if unit == "day":
        return spoken_date(said_on - timedelta(days=number))
    if unit == "week":
        return f"around {spoken_date(said_on - timedelta(weeks=number))}"
    return _PERIODS[unit](-number, said_on)


def _day(found: re.Match[str], said_at: datetime) -> datetime:
    if iso := found["iso"]:
        return datetime.fromisoformat(f"{iso}-01"[:10]).replace(tzinfo=UTC)
    if found["year4"]:
        return datetime(int(found["year4"]), 1, 1, tzinfo=UTC)
    month = MONTHS.index((found["month"] or found["month2"] or found["month3"]).title()) + 1
    day, year = int(found["day"] or found["day2"] or 1), found["year"] or found["year2"] or found["year3"]
    if year:
        return datetime(int(year), month, day, tzinfo=UTC)
    this_year = datetime(said_at.year, month, day, tzinfo=UTC)
    return this_year if this_year <= said_at else this_year.replace(year=said_at.year - 1)
