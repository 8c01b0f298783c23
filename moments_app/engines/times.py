"""Find times in a text that are expressed in words, such as "yesterday", "next Friday", "vor drei Tagen" or "in May".

The words are in `tables/times.txt`, in 29 languages. A month or a weekday is recognized only next to a word such as
"in" or "last", or next to a day's number, because "may" and "sun" also have other meanings.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cache, partial
from itertools import chain

from moments_app.engines.words import digits_with_positions, fold, in_digits, table_lines
from sessions_app import lexemes

# Kinds of patterns.
RELATIVE = "relative"  # relative to the day of the text
ABSOLUTE = "absolute"  # a calendar date
ASKED = "asked"  # recognized only in questions: "on Friday", "the last week"
YEAR = "year"  # "since 2019"
NONE = "none"  # looks like a time, but is not one: "guten Morgen"

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
UNSPACED = frozenset("zh ja th".split())
JOINED = frozenset("ko tr fi hu".split())  # languages that attach endings to words
UNCUT = UNSPACED | {"ko"}  # languages whose words are also matched inside other words
_OF_WEEKS = frozenset("zh ja ko".split())  # languages in which "last Friday" means the Friday of the previous week
LATIN_SHORTEST = 5  # minimum length of a match in an unlikely language
_BEGINNING = 4  # length of the prefix that is looked up for words in highly inflected languages
_GROUP_NAME = re.compile(r"\(\?P<\w+>")
_STEPS = {"last": -1, "this": 0, "next": 1}
_WORD = re.compile(r"[^\W\d_]+")
_SATURDAY = 5
_MONTHS_OF_A_YEAR = 12
_DIGIT_MONTHS = {"zh": r"(\d{1,2})月", "ja": r"(\d{1,2})月", "ko": r"(\d{1,2})월"}
_NUMERIC = re.compile(
    r"(?<!\d)(?P<iso>(?P<y>20\d\d|19\d\d)[-/.](?P<m>\d\d?)[-/.](?P<d>\d\d?))(?!\d)"
    r"|(?<!\d)(?P<y4>20\d\d|19\d\d)-(?P<m4>\d\d)(?![-\d])"
    r"|(?<![\d.])(?P<d2>\d\d?)\.\s?(?P<m2>\d\d?)\.(?:\s?(?P<y2>(?:20|19)\d\d))?(?![\d])"
    r"|(?:(?P<y3>\d{4})\s?[年년]\s?)?(?<!\d)(?P<m3>\d\d?)\s?[月월]\s?(?P<d3>\d\d?)\s?[日号號일]"
)
_ANY_YEAR = r"(?:,? (?:de |del )?(?P<year>(?:19|20)\d\d))?"
_ORDINAL = r"(?:st|nd|rd|th|er|\.|º|ª)?"
_BESIDE = r",?\s?[(\[]?(?:(?:the|am|den|dem|el|le|il|de|op|den|на) )?"


@dataclass(frozen=True)
class Time:
    """A period of days mentioned in a text."""

    unit: str  # day, part, week, weekend, month, season, or year
    first: date
    end: date  # the day after the last day
    name: str = ""  # name of a season or part of the day
    around: date | None = None  # for times such as "three weeks ago", the day exactly three weeks ago
    recurs: str = ""  # `week` or `year`: the interval at which the period recurs

    def after(self, today: date) -> "Time":
        """If the period recurs, return its next occurrence that has not ended. Otherwise, return the period itself."""
        if self.end > today or not self.recurs:
            return self
        if self.recurs == "week":
            return replace(self, first=self.first + timedelta(days=7), end=self.end + timedelta(days=7))
        return replace(self, first=_next_year(self.first), end=_next_year(self.end))

    @property
    def last(self) -> date:
        return self.end - timedelta(days=1)


@dataclass(frozen=True)
class TimeMatch:
    time: Time
    start: int
    end: int
    language: str = field(default="", compare=False)


Reader = Callable[[re.Match[str], date], Time]


@dataclass(frozen=True)
class _Pattern:
    kind: str
    pattern: re.Pattern[str]
    read: Reader | None  # None if the match is not a time


def times_in(digits: str, languages: Iterable[str], kinds: tuple[str, ...], today: date) -> Iterator[TimeMatch]:
    """Yield the possible times in a text, in any order. They may overlap.

    Args:
        digits: The text, as returned by `in_digits`.
        kinds: The kinds of patterns to try.
        today: The day of the text.
    """
    if ABSOLUTE in kinds:
        yield from _found("", _Pattern(ABSOLUTE, _NUMERIC, _numeric), digits, today)
    for language in languages:
        if not _any_pattern(language, kinds).search(digits):
            continue
        for pattern in _patterns(language):
            if pattern.kind in kinds:
                yield from _found(language, pattern, digits, today)


def _found(language: str, pattern: _Pattern, digits: str, today: date) -> Iterator[TimeMatch]:
    for match in pattern.pattern.finditer(digits):
        try:
            time = pattern.read(match, today) if pattern.read else Time(NONE, today, today)
        except (OverflowError, ValueError):  # the day does not exist, or the date is out of range
            continue
        yield TimeMatch(time, *match.span(), language)


def relative_times(text: str, today: date, *, is_dated: bool = False) -> list[TimeMatch]:
    """Return the relative times in a text, in order and without overlaps.

    Args:
        today: The day of the text.
        is_dated: Whether to include times followed by their date, such as "next Friday, 26 May".
    """
    candidates = _candidates(text)
    if not candidates:
        return []
    digits, places = digits_with_positions(text, candidates)
    found = list(times_in(digits, candidates, (RELATIVE, NONE), today))
    if not found:
        return []
    ended, times = 0, list[TimeMatch]()
    kept = in_likely_language(found, text)
    none = [one for one in kept if one.time.unit == NONE]
    named = [one for one in kept if one.time.unit != NONE]
    for one in sorted(named, key=lambda one: (one.start, -one.end)):
        is_none = any(other.start < one.end and one.start < other.end for other in none)
        if one.start >= ended and not is_none and (is_dated or not _is_dated(digits, one)):
            times.append(replace(one, start=places[one.start], end=places[one.end]))
            ended = one.end
    return times


def likely_languages(text: str) -> tuple[str, ...]:
    return (*_of_script(text), *lexemes.likely_languages(text))


def _of_script(text: str) -> list[str]:
    if text.isascii():
        return []
    return [language for languages, letters in _BY_SCRIPT if letters.search(text) for language in languages]


def in_likely_language(found: Iterable[TimeMatch], text: str) -> list[TimeMatch]:
    """Return the times found in the likely languages of the text.

    If there are none and the language is uncertain, return long matches in other languages.
    """
    likely = {"", *likely_languages(text)}
    found = list(found)
    kept = [one for one in found if one.language in likely]
    if kept or lexemes.certain_language(text):
        return kept
    return [one for one in found if _is_latin(one.language) and one.end - one.start >= LATIN_SHORTEST]


def _is_latin(language: str) -> bool:
    return all(language not in languages for languages, _ in _BY_SCRIPT)


def _is_dated(digits: str, found: TimeMatch) -> bool:
    return bool(_date_beside(found.language).match(digits, found.end) or digits[found.end :].startswith(("'s", "’s")))


@cache
def _date_beside(language: str) -> re.Pattern[str]:
    months = any_of(names("month_name", language)) or "(?!)"
    return re.compile(rf"{_BESIDE}(?:\d\d?\S{{0,2}} (?:of |de )?(?:{months})|(?:{months}) \d|\d{{1,4}}[-./]\d)|\s?\[")


# --- words ---


def names(kind: str, language: str = "en") -> list[str]:
    """Return the names of all months (`month_name`) or weekdays, in calendar order and lower case, without accents."""
    words = _words()[language]
    return [name for number in range(13) for name in words.get(f"{kind} {number}", ())]


@cache
def calendar_names() -> frozenset[str]:
    """Return the English names of months and weekdays, which may be mistaken for names of people and places."""
    return frozenset(map(str.title, (*names("month_name"), *names("weekday"))))


def month_name(number: int) -> str:
    return _words()["en"][f"month_name {number}"][0].title()


def spelled_months(language: str) -> list[str]:
    """Return the names of months with their accents."""
    return [name for kind, listed in _listed()[language].items() if kind.startswith("month_name") for name in listed]


def words_for(kind: str, language: str) -> list[str]:
    """Return a language's words of a kind, such as `asking`, in lower case and without accents."""
    return _words().get(language, {}).get(kind, [])


def latin_languages() -> list[str]:
    return list(filter(_is_latin, _words()))


@cache
def _words() -> Mapping[str, Mapping[str, list[str]]]:
    """Return the words of `tables/times.txt` by language and kind, in lower case and without accents."""
    return {
        language: {
            kind: [in_digits(word, ()) if language in UNSPACED else fold(word) for word in listed]
            for kind, listed in kinds.items()
        }
        for language, kinds in _listed().items()
    }


@cache
def _listed() -> Mapping[str, Mapping[str, list[str]]]:
    listed: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for head, words in table_lines("times"):
        language, kind = head.split(" ", 1)
        listed[language][kind] = words.split("|")
    return listed


def _candidates(text: str) -> list[str]:
    """Return the languages in which a text may contain a relative time, based on a quick check of its words."""
    said = fold(text)
    groups: dict[str, set[str]] = defaultdict(set)
    words = set(_WORD.findall(said))
    for key in _keys().keys() & words.union([f"{word[:_BEGINNING]}*" for word in words]):
        for language, group in _keys()[key]:
            groups[language].add(group)
    for language in _of_script(said):
        if language in UNCUT:
            groups[language] = {group for key, group in _parts_of(language) if key in said}
    return [language for language, found in sorted(groups.items()) if "unit" in found or found >= {"name", "which"}]


@cache
def _keys() -> Mapping[str, list[tuple[str, str]]]:
    """Return lookup words, with their languages and groups. Each relative time contains at least one lookup word.

    A lookup word is a whole word, or a prefix followed by `*` if the word can have different endings.
    """
    keys: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for language in _words():
        for phrase, group in _parts_of(language):
            word = max(_WORD.findall(phrase), key=len)
            is_beginning = language in JOINED or phrase.endswith("*")
            keys[f"{word[:_BEGINNING]}*" if is_beginning else word].append((language, group))
    return keys


@cache
def _parts_of(language: str) -> list[tuple[str, str]]:
    """Return the parts of relative times and their groups: `unit`, or `name` and `which` (words such as "last")."""
    groups = dict.fromkeys(_STEPS, "which")
    groups |= dict.fromkeys(("weekday", "month_name", "season"), "name")
    groups |= dict.fromkeys((*_UNITS, "ago", "ahead", "part"), "unit")
    return [
        (max(phrase.split("#"), key=len).strip(), groups[kind])
        for numbered, listed in _words()[language].items()
        if (kind := numbered.split(" ")[0]) in groups
        for phrase in listed
    ]


# --- patterns ---


@cache
def _patterns(language: str) -> tuple[_Pattern, ...]:
    return tuple(
        _Pattern(kind, _compiled(pattern, language), read) for kind, pattern, read in _pattern_sources(language)
    )


@cache
def _any_pattern(language: str, kinds: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches if any pattern of these kinds does. A single search rules out most texts."""
    named = [pattern for kind, pattern, _ in _pattern_sources(language) if kind in kinds]
    return _compiled("|".join(_GROUP_NAME.sub("(", pattern) for pattern in named) or "(?!)", language)


def _pattern_sources(language: str) -> "Iterator[PatternSource]":
    words = _words().get(language, {})
    return chain(_relative_patterns(words), _named_patterns(words, language), _date_patterns(words, language))


def _compiled(pattern: str, language: str) -> re.Pattern[str]:
    if language in UNSPACED:
        return re.compile(pattern)
    return re.compile(rf"(?<!\w)(?:{pattern})" + ("" if language in JOINED else r"(?!\w)"))


def any_of(words: Iterable[str]) -> str:
    """Return a regular expression that matches any of the words, longest first. A `*` matches any ending."""
    longest_first = sorted({word for word in words if word}, key=lambda word: (-len(word), word))
    return "|".join(re.escape(word).replace(r"\*", r"\w*") for word in longest_first)


PatternSource = tuple[str, str, Reader | None]


def _relative_patterns(words: Mapping[str, list[str]]) -> Iterator[PatternSource]:
    """Yield the patterns of relative dates, such as "yesterday" and "3 days ago"."""
    for name, phrases in words.items():
        kind = ASKED if name.startswith("asked ") else RELATIVE
        unit, _, number = name.removeprefix("asked ").partition(" ")
        if unit in _UNITS:
            yield kind, any_of(phrases), partial(_from_today, unit, int(number))
        elif unit in ("ago", "ahead"):
            pattern = "|".join(re.escape(phrase).replace(r"\#", "#").replace("#", r"(\d{1,3})") for phrase in phrases)
            yield kind, pattern, partial(_counted_from_today, number, -1 if unit == "ago" else 1)
        elif unit == "part":
            yield kind, any_of(phrases), partial(_part, number)
        elif unit == "none":
            yield NONE, any_of(phrases), None
    if "ahead_after" in words:
        yield NONE, _until_today(words, "ahead_after", ("ahead month", "ahead year")), None
        yield NONE, _until_today(words, "ahead_not", [name for name in words if name.startswith("ahead ")]), None


def _until_today(words: Mapping[str, list[str]], after: str, ahead: Iterable[str]) -> str:
    """Return a pattern of phrases such as "our first trip without Elin in 9 years"."""
    phrases = "|".join(phrase.replace("#", r"\d{1,3}") for name in ahead for phrase in words[name])
    between = rf"(?:\s(?!(?:{any_of(words['ahead_verb'])})\b)[^\s.,;:!?]+){{0,6}}"
    return rf"(?:{any_of(words[after])}){between}(?<!['’]s)\s(?:{phrases})"


def _from_today(unit: str, number: int, _match: re.Match[str], today: date) -> Time:
    return _UNITS[unit](today, number)


def _counted_from_today(unit: str, step: int, match: re.Match[str], today: date) -> Time:
    count = step * int(next(filter(None, match.groups()), 1))
    time = _UNITS[unit](today, count)
    return replace(time, around=today + timedelta(weeks=count)) if unit == "week" else time


def _part(part: str, _match: re.Match[str], today: date) -> Time:
    return replace(_days(today, -1 if part == "night" else 0), unit="part", name=part)


def _named_patterns(words: Mapping[str, list[str]], language: str) -> Iterator[PatternSource]:
    """Yield the patterns of "last", "this" and "next" with a weekday, month or season."""
    numbers = {unit: _numbers(words, unit) for unit in ("weekday", "month_name", "season")}
    named = "|".join(rf"(?P<{unit}>{any_of(listed)})" for unit, listed in numbers.items() if listed)
    which = "|".join(rf"(?P<{kind}>{any_of(words[kind])})" for kind in _STEPS if kind in words)
    if not named or not which:
        return

    def read(match: re.Match[str], today: date) -> Time:
        found = {group for group, text in match.groupdict().items() if text}
        [step] = [_STEPS[kind] for kind in found & _STEPS.keys()]
        [unit] = found & numbers.keys()
        number = numbers[unit][match[unit]]
        if unit == "weekday":
            is_of_week = language in _OF_WEEKS
            return _days(today, number - today.weekday() + 7 * step) if is_of_week else _weekday(today, number, step)
        year = _year(number, step, today)
        return _month(today, number, year) if unit == "month_name" else _season(year, number, match[unit])

    yield RELATIVE, rf"(?:{which})\s?(?:{named})", read
    yield RELATIVE, rf"(?:{named})\s?(?:{which})", read


def _numbers(words: Mapping[str, list[str]], kind: str) -> dict[str, int]:
    """Return the number of each name, such as 5 for "may"."""
    return {name: number for number in range(13) for name in words.get(f"{kind} {number}", ())}


def _date_patterns(words: Mapping[str, list[str]], language: str) -> Iterator[PatternSource]:
    """Yield the patterns of dates, months, years, and weekdays in questions."""
    months, days = _numbers(words, "month_name"), _numbers(words, "weekday")
    in_, on = any_of(words.get("in", ())), any_of(words.get("on", ()))
    month = rf"(?P<month>{any_of(months)})"

    def day(match: re.Match[str], today: date) -> Time:
        return _day(today, int(match["day"]), months[match["month"]], _number(match["year"]))

    def whole(match: re.Match[str], today: date) -> Time:
        return _month(today, months[match["month"]], _number(match["year"]))

    def weekday(match: re.Match[str], today: date) -> Time:
        return replace(_weekday(today, days[match["day"]], -1), recurs="week")

    if pattern := _DIGIT_MONTHS.get(language):
        yield ABSOLUTE, rf"(?<!\d){pattern}(?!\s?\d)", lambda match, today: _month(today, int(match[1]), None)
    if months:
        yield ABSOLUTE, rf"(?P<day>\d\d?){_ORDINAL}\s(?:of |de |del |d')?{month}{_ANY_YEAR}", day
        before = r"(?:on |since |the )" if language == "en" else ""
        yield ABSOLUTE, rf"{before}{month} (?P<day>\d\d?)(?:st|nd|rd|th|\.)?(?!\d){_ANY_YEAR}", day
    if language == "en":
        yield ABSOLUTE, rf"{month} (?P<day>\d\d?)(?:st|nd|rd|th){_ANY_YEAR}", day
        yield ABSOLUTE, rf"{month} (?P<day>\d\d?),? (?P<year>(?:19|20)\d\d)", day
    if months and in_:
        yield ABSOLUTE, rf"(?:{in_})\s?{month}{_ANY_YEAR}", whole
        yield YEAR, rf"(?:{in_})\s?(?P<year>(?:19|20)\d\d)", lambda match, _today: _whole_year(int(match["year"]))
    if days and (on or language in UNSPACED):
        yield ASKED, (rf"(?:{on})\s?" if on else "") + rf"(?P<day>{any_of(days)})", weekday


# --- days ---


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _days(today: date, number: int) -> Time:
    first = today + timedelta(days=number)
    return Time("day", first, first + timedelta(days=1))


def _next_year(day: date) -> date:
    # 29 February becomes 1 March.
    return date(day.year + 1, day.month, 1) + timedelta(days=day.day - 1)


def _weeks(today: date, number: int) -> Time:
    first = today + timedelta(days=7 * number - today.weekday())
    return Time("week", first, first + timedelta(days=7))


def _weekends(today: date, number: int) -> Time:
    saturday = today + timedelta(days=7 * number + _SATURDAY - today.weekday())
    return Time("weekend", saturday, saturday + timedelta(days=2))


def _shifted(year: int, month: int, number: int) -> date:
    """Return the first day of the month `number` months after the given one."""
    months = year * _MONTHS_OF_A_YEAR + month - 1 + number
    return date(months // _MONTHS_OF_A_YEAR, months % _MONTHS_OF_A_YEAR + 1, 1)


def _months_from(today: date, number: int) -> Time:
    return Time("month", _shifted(today.year, today.month, number), _shifted(today.year, today.month, number + 1))


def _years(today: date, number: int) -> Time:
    return _whole_year(today.year + number)


def _whole_year(year: int) -> Time:
    return Time("year", date(year, 1, 1), date(year + 1, 1, 1))


_UNITS: dict[str, Callable[[date, int], Time]] = {
    "day": _days,
    "week": _weeks,
    "weekend": _weekends,
    "month": _months_from,
    "year": _years,
}


def _numeric(match: re.Match[str], today: date) -> Time:
    named = {name[0]: int(number) for name, number in match.groupdict().items() if number and name != "iso"}
    if "d" not in named:
        return _month(today, named["m"], named["y"])
    return _day(today, named["d"], named["m"], named.get("y"))


def _day(today: date, day: int, month: int, year: int | None) -> Time:
    """Return a day. Without a year, return the latest such day that is not in the future."""
    first = date(year or today.year, month, day)
    if year is None and first > today:
        first = first.replace(year=today.year - 1)
    return Time("day", first, first + timedelta(days=1), recurs="" if year else "year")


def _month(today: date, month: int, year: int | None) -> Time:
    """Return a month. Without a year, return the latest such month that is not in the future."""
    first = date(year or (today.year if month <= today.month else today.year - 1), month, 1)
    return replace(_months_from(first, 0), recurs="" if year else "year")


def _weekday(today: date, weekday: int, step: int) -> Time:
    """Return the last such weekday before today (`step` -1), or the next one. "This Friday" may be today."""
    ahead = (weekday - today.weekday()) % 7
    return _days(today, ahead - 7 if step < 0 else ahead or 7 * step)


def _season(year: int, last_month: int, name: str) -> Time:
    end = _shifted(year, last_month, 1)
    return Time("season", _shifted(end.year, end.month, -3), end, name)


def _year(ends: int, step: int, today: date) -> int:
    """Return the year of the last, current or next month or season, given the month in which it ends."""
    if step < 0:
        return today.year - (ends >= today.month)
    return today.year + (ends < today.month or (step > 0 and ends == today.month))
