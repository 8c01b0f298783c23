"""Find times that are not an end: "from tomorrow", "every Monday". `times.txt` has the words around them."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from moments_app.engines import times
from moments_app.engines.times import Found

_HABITUAL = frozenset("fr it".split())  # "le lundi" is every Monday
_DATE = re.compile(r"\s?\[[^\]]*\]")  # after a relative time
_BETWEEN = " ,()"
_DASHES = frozenset("-–—")

Languages = tuple[str, ...]


def without_open(digits: str, found: Iterable[Found], languages: Languages) -> list[Found]:
    """Return the times at which something ends.

    Leave out start times and recurring times: "from 3 May to 5 May" gives the 5th.

    Args:
        digits: the text as `in_digits` writes it.
        found: the times in it.
        languages: the languages of the text.
    """
    dated = [replace(one, end=_end_of_date(digits, one.end)) for one in found]
    whole = [one for one in dated if not any(_is_part(one, other) for other in dated)]
    ends = [one for one in whole if not _is_beginning(digits, one, whole, languages)]
    return [one for one in ends if not _recurs(digits, one, languages)]


def _is_part(one: Found, other: Found) -> bool:
    """Return whether a time is part of a longer one, as "tomorrow" in "the day after tomorrow"."""
    return other.start <= one.start and one.end <= other.end and one.end - one.start < other.end - other.start


def _end_of_date(digits: str, end: int) -> int:
    date = _DATE.match(digits, end)
    return date.end() if date else end


def _is_beginning(digits: str, one: Found, others: Iterable[Found], languages: Languages) -> bool:
    """Return whether a time is the start of a period."""
    begin, until = _pattern("from", languages), _pattern("until", languages)
    if begin.match(digits, one.start) or _stands_before(begin, digits, one.start):
        return True
    gaps = (digits[one.end : other.start].strip(_BETWEEN) for other in others if other.start > one.end)
    return any(gap in _DASHES or until.fullmatch(gap) for gap in gaps) or bool(
        _pattern("onward", languages).match(digits[one.end :].lstrip(_BETWEEN))
    )


def _recurs(digits: str, one: Found, languages: Languages) -> bool:
    """Return whether a time recurs."""
    if not one.time.recurs or _stands_before(_pattern("until", languages), digits, one.start):
        return False
    is_habitual = one.time.recurs == "week" and one.language in _HABITUAL
    return is_habitual or bool(_pattern("every", languages).search(digits))


def _stands_before(words: re.Pattern[str], digits: str, start: int) -> bool:
    return any(not digits[match.end() : start].strip(_BETWEEN) for match in words.finditer(digits, 0, start))


@cache
def _pattern(kind: str, languages: Languages) -> re.Pattern[str]:
    """Return the pattern for one kind of words: `from`, `until`, `onward` or `every`."""
    return re.compile("|".join(filter(None, (_of_language(kind, language) for language in languages))) or "(?!)")


def _of_language(kind: str, language: str) -> str:
    words = times.any_of(times.words_for(kind, language))
    if not words or language in times.UNCUT:
        return words
    if kind == "onward" and language in times.JOINED:
        return rf"\w*?\W?(?:{words})"
    return rf"(?<!\w)(?:{words})(?!\w)"
