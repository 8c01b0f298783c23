"""Split texts into comparable words and into lines, find their speakers, and write number words as digits.

Also read the tables of words and patterns in several languages (`tables/`).
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

# A mark after a word is part of the word if it changes the meaning, as in C++, C# and the blood groups A+ and AB-.
_WORD = re.compile(r"\w+(?:[+#]+|-(?:(?<=\b\w-)|(?<=\b\w\w-))(?![\w-]))?")
_FINAL_HYPHEN = re.compile(r"-(?<=\w-)(?![\w-])")
_LETTER = re.compile(r"\w")
# A translation table for ASCII: word characters in lower case, and spaces for all others. Mapping bytes is faster than
# mapping texts.
_IN_WORDS = "".join(chr(n).lower() if _LETTER.match(chr(n)) else " " for n in range(128)).encode().ljust(256)
_BETWEEN_WORDS = re.compile(r"[\W_]+")
_DAY = re.compile(r"[\[(]\d{4}-\d\d-\d\d[\])]|\(planned for [^)]{4,40}\)")
_SPEAKER = re.compile(r"\s*([^\W\d_][^:\n]{0,38}):\s")
_SPEAKER_OF_LINE = re.compile(r"^[\s-]*[^\W\d_]+:\s")
NAME_WORDS = 3  # maximum words in a speaker's name
# Names of the assistant in transcripts without speaker names.
_ASSISTANTS = frozenset("assistant assistent asistente assistente asystent ассистент 助手 アシスタント ai bot".split())
# Like `_IN_WORDS`, but an underscore ends a word.
_IN_PLAIN_WORDS = "".join(chr(n).lower() if chr(n).isalnum() else " " for n in range(128)).encode().ljust(256)
LIST_MARK = "- "  # the marker of a list item

_SENTENCE_END = re.compile(r"(?:(?<=[.!?])(?=\s)|(?<=[。！？]))(\s*)")


def words_of(text: str) -> list[str]:
    """Return the case-folded words of a text, in order."""
    has_mark = "+" in text or "#" in text or ("-" in text and _FINAL_HYPHEN.search(text))
    if text.isascii() and not has_mark:  # five times faster than the pattern
        return text.encode().translate(_IN_WORDS).decode().split()
    return _WORD.findall(text.casefold().replace("−", "-"))


def without_marks(word: str) -> str:
    return word.rstrip("+#-")


def plain_words(text: str) -> str:
    """Return the case-folded words of a text, separated by single spaces. An underscore ends a word."""
    if text.isascii():
        return " ".join(text.encode().translate(_IN_PLAIN_WORDS).decode().split())
    return _BETWEEN_WORDS.sub(" ", text).strip().casefold()


def without_dates(line: str) -> str:
    return _DAY.sub(" ", line)


def undated_words(line: str) -> str:
    """Return the words of a memory line without its dates.

    Each word has a space on both sides, so that `in` finds only whole words.
    """
    return f" {' '.join(words_of(without_dates(line).replace('_', ' ')))} "


def speaker_of(content: str) -> str:
    """Return the name in front of a text, as in "Nora: …", or an empty string."""
    match = _SPEAKER.match(content)
    return match[1] if match and len(match[1].split()) <= NAME_WORDS else ""


def is_from_assistant(role: str, speaker: str) -> bool:
    """Return whether a turn is from an assistant.

    An assistant turn that starts with a person's name is from that person.
    """
    return role == "assistant" and (speaker or "assistant").casefold() in _ASSISTANTS


def without_speaker(line: str) -> str:
    return _SPEAKER_OF_LINE.sub("", line)


@dataclass(frozen=True)
class Line:
    """A list item with the heading of its list, or a sentence. The heading may be blank."""

    text: str
    heading: str = ""


def memory_lines(text: str) -> list[Line]:
    """Split a text into list items with their headings, and sentences."""
    lines: list[Line] = []
    heading = ""
    rows = [row.rstrip() for row in text.split("\n") if row.strip()]
    for number, row in enumerate(rows):
        following = rows[number + 1] if number + 1 < len(rows) else ""
        if row.startswith(LIST_MARK):
            lines.append(Line(row, heading))
        elif row.endswith(":") and following.startswith(LIST_MARK):
            heading = row
        else:
            heading = ""
            lines += [Line(sentence) for sentence in _SENTENCE_END.split(row)[::2] if sentence]
    return lines


# --- tables of words and patterns ---
#
# A line consists of a name or a language, a colon, and words or a pattern. `#` starts a comment. A name in angle
# brackets, such as `<PLACE>`, is replaced with a part of a pattern that the calling module defines.

_TABLES = Path(__file__).parent / "tables"
_PART = re.compile(r"<([A-Z_]+)>")


@cache
def table_lines(name: str) -> tuple[tuple[str, str], ...]:
    """Return the lines of a table, each split at its first colon."""
    lines = (_TABLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    read = (line.partition(": ") for line in lines if not line.startswith("#"))
    return tuple((head, rest) for head, _, rest in read)


@cache
def table_words(name: str, language: str) -> tuple[str, ...]:
    return tuple(dict(table_lines(name)).get(language, "").split())


@cache
def word_set(*names: str) -> frozenset[str]:
    """Return the entries of some tables in `english.txt`."""
    tables = dict(table_lines("english"))
    return frozenset(entry.strip() for name in names for entry in tables[name].split(","))


@cache
def any_of(*names: str) -> str:
    """Return a regular expression that matches the entries of some English tables, longest first."""
    found = sorted(word_set(*names), key=lambda entry: (-len(entry), entry))
    return "|".join(re.escape(entry) for entry in found)


@cache
def english() -> dict[str, str]:
    """Return the regular expressions of all English tables, keyed by the table's name in capitals."""
    return {name.upper(): any_of(name) for name, _ in table_lines("english")}


@cache
def any_pattern(name: str, language: str | None = None) -> re.Pattern[str]:
    """Return a case-insensitive pattern that matches any pattern of a table, in one language or in all."""
    patterns = [pattern for own, pattern in table_lines(name) if language in (None, own)]
    return re.compile("|".join(patterns) or "(?!)", re.IGNORECASE)


def fill_pattern(pattern: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda name: parts[name[1]], pattern)


# --- number words of six languages ---
#
# A word may have another meaning in another language ("once" is eleven in Spanish), so words in Latin letters count
# only in the languages of the text.

_DOZEN, _HUNDRED, _THOUSAND = 12, 100, 1000
_DOZENS = frozenset("dozen dozens dutzend docena docenas douzaine дюжина дюжину".split())
_JOINTS = frozenset("and und y et".split())
_LETTERS_ONLY = re.compile(r"[^\W\d_]+")
_GAP = re.compile(r"[\s-]+")
_CHINESE = re.compile("[零〇一二两兩三四五六七八九十百千万萬]+")
_CHINESE_DIGITS = {"〇": 0, "两": 2, "兩": 2} | {digit: value for value, digit in enumerate("零一二三四五六七八九")}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "萬": 10_000}
_BY_SCRIPT = ("ru",)
_PIECES = re.compile(r"(hundert|tausend|und)")


def fold(text: str) -> str:
    """Return a text in lower case, without accents."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(one for one in folded if not unicodedata.combining(one)))


def in_digits(text: str, languages: Collection[str]) -> str:
    """Return a text in lower case, without accents, and with its number words as digits."""
    return _in_digits(fold(text), [], languages)[0]


def digits_with_positions(text: str, languages: Collection[str]) -> tuple[str, list[int]]:
    """Return the result of `in_digits`, and the positions of its characters in the original text.

    The list has the position of each character, and of the end of the text.
    """
    letters = text.lower() if text.isascii() else [fold(one) for one in text]
    places = [place for place, written in enumerate(letters) for _ in written]
    return _in_digits("".join(letters), [*places, len(text)], languages)


def _in_digits(text: str, places: list[int], languages: Collection[str]) -> tuple[str, list[int]]:
    chinese = [(match.start(), match.end(), str(_chinese(match[0]))) for match in _CHINESE.finditer(text)]
    text, places = _replaced(text, places, chinese)
    runs = _runs(text, _values((*languages, *_BY_SCRIPT)))
    return _replaced(text, places, [(run[0].start, run[-1].end, " ".join(map(str, _combined(run)))) for run in runs])


def _replaced(text: str, places: list[int], parts: Iterable[tuple[int, int, str]]) -> tuple[str, list[int]]:
    """Replace parts of a text. Return it with the updated `places`: the original index of each character."""
    result, left, last = "", list[int](), 0
    for start, end, instead in parts:
        result += text[last:start] + instead
        left += [*places[last:start], *places[start : start + 1] * len(instead)]
        last = end
    return result + text[last:], left + places[last:]


class _Number(NamedTuple):
    word: str
    value: int
    start: int
    end: int


def _runs(text: str, values: dict[str, int]) -> Iterator[list[_Number]]:
    """Yield runs of adjacent number words."""
    run: list[_Number] = []
    joint = ""
    end = 0
    for match in _LETTERS_ONLY.finditer(text):
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


def _may_join(before: _Number, value: int, joint: str) -> bool:
    """Return whether "and" joins two numbers into one, as in "hundred and five" or "treinta y dos"."""
    if joint in ("y", "et"):
        return before.value >= 20 and before.value > value
    return before.value >= _HUNDRED > value and joint == "and"


def _value(word: str, values: dict[str, int]) -> int | None:
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


def _combined(run: Iterable[_Number]) -> Iterator[int]:
    total, current, is_begun = 0, 0, False
    for number in run:
        value = number.value
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
    known = _number_words()
    return {word: value for language in languages for word, value in known.get(language, {}).items()}


@cache
def _number_words() -> dict[str, dict[str, int]]:
    words: dict[str, dict[str, int]] = defaultdict(dict)
    for head, listed in table_lines("numbers"):
        language, value = head.split()
        words[language] |= {fold(word): int(value) for word in listed.split()}
    return words
