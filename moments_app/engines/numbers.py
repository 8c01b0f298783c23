"""Numbers in texts: `in_digits` writes number words of six languages as digits.

A word may have another meaning in another language ("once" is eleven in Spanish), so words in Latin letters count only
in the languages of the text.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

_DOZEN, _HUNDRED, _THOUSAND = 12, 100, 1000
_DOZENS = frozenset("dozen dozens dutzend docena docenas douzaine дюжина дюжину".split())
_JOINTS = frozenset("and und y et".split())
_WORD = re.compile(r"[^\W\d_]+")
_GAP = re.compile(r"[\s-]+")
_CHINESE = re.compile("[零〇一二两兩三四五六七八九十百千万萬]+")
_CHINESE_DIGITS = {"〇": 0, "两": 2, "兩": 2} | {digit: value for value, digit in enumerate("零一二三四五六七八九")}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "萬": 10_000}
_BY_SCRIPT = ("ru",)
_PIECES = re.compile(r"(hundert|tausend|und)")


def plain(text: str) -> str:
    """Return a text in lower case, without accents."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(one for one in folded if not unicodedata.combining(one)))


def in_digits(text: str, languages: Collection[str]) -> str:
    """Return a text in lower case, without accents, and with its number words as digits."""
    return _in_digits(plain(text), [], languages)[0]


def placed_digits(text: str, languages: Collection[str]) -> tuple[str, list[int]]:
    """Return the result of `in_digits`, and the index in the original text of each of its characters and of its end."""
    letters = text.lower() if text.isascii() else [plain(one) for one in text]
    places = [place for place, written in enumerate(letters) for _ in written]
    return _in_digits("".join(letters), [*places, len(text)], languages)


def _in_digits(text: str, places: list[int], languages: Collection[str]) -> tuple[str, list[int]]:
    chinese = [(match.start(), match.end(), str(_chinese(match[0]))) for match in _CHINESE.finditer(text)]
    text, places = _replaced(text, places, chinese)
    runs = _runs(text, _values((*languages, *_BY_SCRIPT)))
    return _replaced(text, places, [(run[0].start, run[-1].end, " ".join(map(str, _numbers(run)))) for run in runs])


def _replaced(text: str, places: list[int], parts: Iterable[tuple[int, int, str]]) -> tuple[str, list[int]]:
    """Replace parts of a text, and the same parts of the list of indexes. Return both."""
    result, left, last = "", list[int](), 0
    for start, end, instead in parts:
        result += text[last:start] + instead
        left += [*places[last:start], *places[start : start + 1] * len(instead)]
        last = end
    return result + text[last:], left + places[last:]


class _Number:
    def __init__(self, word: str, value: float, start: int, end: int) -> None:
        self.word, self.value, self.start, self.end = word, value, start, end


def _runs(text: str, values: dict[str, int]) -> Iterator[list[_Number]]:
    """Yield runs of adjacent number words."""
    run: list[_Number] = []
    joint = ""
    end = 0
    for match in _WORD.finditer(text):
        word = match[0]
        is_near = bool(run) and bool(_GAP.fullmatch(text[end : match.start()]))
        value = _value(word, values)
        if run and not is_near:
            yield run
            run, joint = [], ""
        if value is not None:
            if joint and not _may_join(run[-1], value, joint):
                yield run
                run = []
            run.append(_Number(word, value, match.start(), match.end()))
            joint, end = "", match.end()
        elif run and word in _JOINTS and not joint:
            joint, end = word, match.end()
        elif run:
            yield run
            run, joint = [], ""
    if run:
        yield run


def _may_join(before: _Number, value: float, joint: str) -> bool:
    """Return whether "and" joins two numbers into one, as in "hundred and five" or "treinta y dos"."""
    if joint in ("y", "et"):
        return before.value >= 20 and before.value > value
    return before.value >= _HUNDRED > value and joint == "and"


def _value(word: str, values: dict[str, int]) -> float | None:
    if word in values:
        return values[word]
    return _compound(word, values) if "zwanzig" in values else None


def _compound(word: str, values: dict[str, int]) -> int | None:
    """Return the value of a German compound such as "fünfundzwanzig", or None for any other word."""
    total, current = 0, 0
    for piece in filter(None, _PIECES.split(word)):
        if piece == "und":
            continue
        value = values.get(piece)
        if value is None:
            return None
        if value in (_HUNDRED, _THOUSAND):
            total, current = (total + max(current, 1) * value, 0)
        else:
            current += value
    return total + current if len(_PIECES.split(word)) > 1 else None


def _numbers(run: Iterable[_Number]) -> Iterator[int]:
    """Combine adjacent number words into numbers."""
    total, current, is_begun = 0, 0, False
    for number in run:
        value = int(number.value)
        if number.word in _DOZENS:
            current = max(current, 1) * _DOZEN
        elif value == _HUNDRED and current < _HUNDRED:
            current = max(current, 1) * _HUNDRED
        elif value >= _THOUSAND and (is_begun or not total):
            total, current = total + max(current, 1) * value, 0
        elif number.word.startswith("vingt") and current % _HUNDRED == 4:
            current += 76  # quatre-vingt
        elif not is_begun or _fits(total, current, value):
            current += value
        else:
            yield total + current
            total, current = 0, value
        is_begun = True
    yield total + current


def _fits(total: int, current: int, value: int) -> bool:
    """Return whether a value is part of the preceding number, as in "twenty-five" or "soixante-quinze"."""
    if current == 0:
        return total > 0
    tens = current % _HUNDRED
    if value < 10:
        return tens == 0 or tens % 10 == 0
    if value < 20:
        return tens in (0, 60, 80) and current >= 60
    return value < _HUNDRED <= current and tens == 0


def _chinese(digits: str) -> int:
    if not any(character in _CHINESE_UNITS for character in digits):
        return int("".join(str(_CHINESE_DIGITS[character]) for character in digits))
    total, section, current = 0, 0, 0
    for character in digits:
        unit = _CHINESE_UNITS.get(character)
        if unit is None:
            current = _CHINESE_DIGITS[character]
        elif unit == 10_000:
            total, section, current = total + max(section + current, 1) * unit, 0, 0
        else:
            section, current = section + max(current, 1) * unit, 0
    return total + section + current


@lru_cache(maxsize=64)
def _values(languages: tuple[str, ...]) -> dict[str, int]:
    known = _words()
    return {word: value for language in languages for word, value in known.get(language, {}).items()}


@cache
def _words() -> dict[str, dict[str, int]]:
    words: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (Path(__file__).parent / "numbers.txt").read_text().splitlines():
        if not line.startswith("#"):
            head, _, listed = line.partition(": ")
            language, value = head.split()
            words[language] |= {plain(word): int(value) for word in listed.split()}
    return words
