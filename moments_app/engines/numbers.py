"""Numbers that can be derived from a text: "ten years ago" gives a year, and "half past five" gives 17:30."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate, pairwise

MAX_LISTED = 12  # maximum number of items to count in a list
_AGES = range(1, 111)
_SCALES = {
    1_000: "k thousand tausend tsd mil mille тыс тысяч тысячи тысяча",
    1_000_000: "m mn million millions mio millionen millones млн миллион миллиона миллионов",
    10_000: "万 萬",
}
_SCALE = {word: value for value, words in _SCALES.items() for word in words.split()}
_SCALED = re.compile(rf"(\d[\d.,]*)\s?({'|'.join(sorted(_SCALE, key=len, reverse=True))})(?![^\W\d_万萬])")
_YEAR_UNIT = (
    r"[ -]?(?:years?|yrs?|jahren?|jahrige[nrs]?|anos?|ans?|annees?|год(?:а|у|ом|ов)?|лет(?:ию|ие)?|年|岁|歲)"
    "(?![a-zа-я])"
)
_SPAN_OF_YEARS = re.compile(rf"(?<![\d.,:])(\d{{1,3}}|an?|einem|ein){_YEAR_UNIT}")
_ENDS_AGE = r"(?=\s*(?:[.,;!?)]|$|(?:and|but|now|last|in|this|on|und|jetzt|y|en|am|im|et)\b))"
_AGE = re.compile(
    r"\b(?:i'm|i’m|am|is|are|was|turned|turns|turning|turn|aged|age|he's|she's|bin|ist|wurde|wird|werde|"
    rf"cumpl\w+|исполнил\w+)\s(\d{{1,3}}){_ENDS_AGE}"
)
_DECADE = re.compile(
    r"['’]?\b(?:19|20)?(\d0)(?:'?s\b|er[n]?\b|er jahre|-?е\b|-?х\b|年代)|\b(?:annees|anos|los|les annees)\s(\d0)\b"
)
_DECADES = {
    number: words.split()
    for number, words in (
        (20, "twenties zwanziger двадцатые двадцатых"),
        (30, "thirties dreissiger тридцатые тридцатых"),
        (40, "forties vierziger сороковые сороковых"),
        (50, "fifties funfziger пятидесятые пятидесятых"),
        (60, "sixties sechziger шестидесятые шестидесятых"),
        (70, "seventies siebziger семидесятые семидесятых"),
        (80, "eighties achtziger восьмидесятые восьмидесятых"),
        (90, "nineties neunziger девяностые девяностых"),
    )
}
_DECADE_WORD = {word: number for number, words in _DECADES.items() for word in words}
_DECADE_WORDS = re.compile(rf"\b(?:{'|'.join(_DECADE_WORD)})")
_SHORT_YEAR = re.compile(r"['’](\d\d)(?![\d\w])|(?<!\d)([3-9]\d)年(?!代)|\b\d\d?[./]\d\d?[./](\d\d)(?!\d)")
_HALF_DOZEN = re.compile(r"\b(?:half a|ein halbes|media|une demi-?)\s?12\b")
_SPOKEN_YEAR = re.compile(r"\b(1[1-9]|20) (\d\d)\b")
_DURATION = re.compile(r"\b(\d\d?) (?:hours?|stunden?|horas?|heures?|часов|часа)[a-z, ]{1,7}(\d\d?) min")

_HOUR = r"(\d\d?)"
_PAST = (  # minutes past the hour
    (30, rf"\bhalf (?:past )?{_HOUR}\b|\b{_HOUR} y media\b|\b{_HOUR} heures? et demie?\b|{_HOUR}\s?[点點]半"),
    (15, rf"\b(?:quarter (?:past|after)|viertel nach) {_HOUR}\b|\b{_HOUR} y cuarto\b|\b{_HOUR} heures? et quart\b"),
    (15, rf"{_HOUR}\s?[点點](?:一|1)刻"),
    (-15, rf"\b(?:quarter (?:to|of|before|till)|viertel vor|dreiviertel|без четверти) {_HOUR}\b"),
    (-15, rf"\b{_HOUR} menos cuarto\b|\b{_HOUR} heures? moins le quart\b"),
    (-30, rf"\bhalb {_HOUR}\b|\bпол(?:овин[аеуы])?\s?{_HOUR}\b"),
    (0, rf"\b{_HOUR}\s?(?:[ap]\.?m\b|o['’]clock|uhr\b|heures?\b|h\b|[点點]|час)|\bat {_HOUR}\b|\blas {_HOUR}\b"),
    (0, rf"\bum {_HOUR}\b|\bв {_HOUR}\b"),
)
_HOURS_PAST = tuple((minutes, re.compile(pattern)) for minutes, pattern in _PAST)
_MINUTES = re.compile(
    rf"\b(?P<past>5|10|20|25) (?:past|after|nach) {_HOUR}\b|\b(?P<to>5|10|20|25) (?:to|before|vor) {_HOUR}\b"
    rf"|\b{_HOUR}\s?[:.h点點時时]\s?(\d\d)(?!\d)|\b{_HOUR} uhr (\d\d)\b"
)
_NAMED_TIMES = {
    12: "noon midday mittag mittags mediodia midi полдень 中午 正午",
    0: "midnight mitternacht medianoche minuit полночь 午夜",
}
_NAMED_TIME = {word: hour for hour, words in _NAMED_TIMES.items() for word in words.split()}
_NAMED_TIME_WORDS = re.compile("|".join(_NAMED_TIME))
_RUSSIAN_HALF = re.compile(r"\bпол(?=перв|втор|трет|четверт|пят|шест|седьм|восьм|девят|десят|одиннадцат|двенадцат)")

_LIST_JOINT = re.compile(r"\s*[,;、]\s*(?:and |und |or |y |et |и )?|\s+(?:and|und|or|oder|y|et|и)\s+|[和與与]")
_CLAUSE = re.compile(r"[.!?。！？:\n]+\s*")
_LONGEST_ITEM = 5  # maximum words of an item in a list
_DIGITS = re.compile(r"\d+")


def decades_in_digits(text: str) -> str:
    """Return a plain text with decade words as digits, and with the Russian prefix for "half" as a separate word."""
    text = _DECADE_WORDS.sub(lambda match: f"{_DECADE_WORD[match[0]]}s ", text)
    return _RUSSIAN_HALF.sub("половина ", text)


def derived_numbers(text: str, said_at: datetime) -> Iterator[int | str]:
    """Yield the numbers that can be derived from a text: years (also from ages), decades, times, products.

    Args:
        text: As returned by `in_digits`.
        said_at: The time of the text, in the person's time zone.
    """
    yield from (_scaled(match[1], match[2]) for match in _SCALED.finditer(text))
    if _HALF_DOZEN.search(text):
        yield 6
    yield from (match[1] + match[2] for match in _SPOKEN_YEAR.finditer(text))
    yield from _years(text, said_at.year)
    yield from (form for hour, minutes in _times_in(text) for form in _forms(hour, minutes))
    yield from (form for hours, minutes in _DURATION.findall(text) for form in _forms(int(hours), int(minutes)))


def _scaled(number: str, scale: str) -> int:
    """Return the value of a number such as "1.5" or "65" with "million" or "k"."""
    is_decimal = bool(re.fullmatch(r"\d+[.,]\d{1,2}", number))
    digits = number.replace(",", ".") if is_decimal else re.sub(r"\D", "", number)
    return round(float(digits) * _SCALE[scale])


def spans_of_years(text: str) -> set[int]:
    """Return the durations in a text that are given in years: 15 from "15 years", 43 from "43 года"."""
    return {int(number) if number.isdigit() else 1 for number in _SPAN_OF_YEARS.findall(text)}


def years_since(text: str, said_at: datetime) -> set[int]:
    """Return how many years may have passed since each year mentioned in a text."""
    years = [int(number) for number in re.findall(r"(?<!\d)(?:19|20)\d\d(?!\d)", text)]
    return {said_at.year - year - less for year in years for less in (0, 1) if year <= said_at.year}


def numbers_in(text: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each number of a text, with its possible other forms."""
    text = re.sub(r"(?<=\d)\s?[hH点點時时]\s?(?=\d\d(?!\d))", ":", text)
    for match in re.finditer(r"['’]?\d+(?:[.,:]\d+)*", text):
        digits = re.sub(r"\D", "", match[0])
        forms = {digits}
        if match[0][0] in "'’" and len(digits) == 2:
            forms |= {f"19{digits}", f"20{digits}"}
        if scale := _SCALED.match(text.casefold(), match.start()):
            forms.add(str(_scaled(scale[1], scale[2])))
        yield match[0], forms


def _years(text: str, now: int) -> Iterator[int]:
    spans = spans_of_years(text) | {int(number) for number in _AGE.findall(text)}
    for span in spans & {*_AGES}:
        yield from (now - span, now - span - 1)
    decades = (int(one or other) for one, other in _DECADE.findall(text))
    yield from (year for decade in decades for year in (1900 + decade, 2000 + decade) if year <= now)
    for digits in ("".join(groups) for groups in _SHORT_YEAR.findall(text)):
        yield max(year for year in (1900 + int(digits), 2000 + int(digits)) if year <= now or year < 2000)


def _times_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the times of day of a plain text, as hours and minutes."""
    for minutes, pattern in _HOURS_PAST:
        for match in pattern.finditer(text):
            hour = int(next(filter(None, match.groups())))
            yield (hour - (minutes < 0)) % 24, minutes % 60
    for match in _MINUTES.finditer(text):
        yield _clock(match)
    yield from ((_NAMED_TIME[word], 0) for word in _NAMED_TIME_WORDS.findall(text))


def _clock(match: re.Match[str]) -> tuple[int, int]:
    numbers = [int(number) for number in match.groups() if number]
    if match["past"]:
        return numbers[1] % 24, numbers[0]
    if match["to"]:
        return (numbers[1] - 1) % 24, 60 - numbers[0]
    return numbers[0] % 24, numbers[1] % 60


def _forms(hour: int, minutes: int) -> Iterator[str]:
    """Yield the ways to write a time in digits, in the morning and in the evening."""
    for each in {hour % 24, (hour + 12) % 24}:
        yield from (f"{each}{minutes:02d}", f"{each:02d}{minutes:02d}")
        if minutes == 0:
            yield str(each)
    if hour == 0 and minutes == 0:
        yield from ("24", "2400")


def counts_of_lists(text: str) -> set[int]:
    """Return the possible lengths of the lists in a text.

    Args:
        text: As returned by `in_digits`.
    """
    counts: set[int] = set()
    for sentence in _CLAUSE.split(text):
        items = [item for item in _LIST_JOINT.split(sentence) if item.strip()]
        ends = [0, *(place for place, item in enumerate(items) if len(item.split()) > _LONGEST_ITEM), len(items) - 1]
        for first, last in pairwise(sorted(set(ends))):
            numbers = [_quantity(item) for item in items[first : last + 1]]
            for start in (0, 1):
                counts |= {*range(2, len(numbers) - start + 1), *list(accumulate(numbers[start:]))[1:]}
    return {count for count in counts if 1 < count <= MAX_LISTED}


def _quantity(item: str) -> int:
    numbers = [int(number) for number in _DIGITS.findall(item) if len(number) < 3]
    return numbers[-1] if numbers and numbers[-1] else 1
