"""The words, sentences and language of a text."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

from moments_app.engines import times
from moments_app.engines.statements import QUOTATION
from moments_app.engines.words import table_words, word_set
from sessions_app.lexemes import certain_language, likely_languages, stop_words

ENGLISH = "en"
UNKNOWN = ""  # a language without stop words, in which only sentence ends are recognized
# Languages with stop words.
LANGUAGES = (
    *(ENGLISH, "de", "fr", "es", "it", "nl", "sv", "da", "no", "pt", "pl", "fi", "cs", "hu", "id", "ro", "tr"),
    *("ar", "el", "hi", "ru"),
)
SENTENCE_TEXT_MAX = 4_000  # maximum characters of a text that are split into sentences
SENTENCE_MAX = 400  # maximum characters of a sentence; anything longer is a list, code or not prose
MIN_SCRIPT_SHARE = 0.5  # minimum share of words in one script for the script to determine the text's language
SAMPLE = 1_000  # number of characters at the beginning of a text from which its language is detected

LETTERS = r"(?:[^\W\d_]|[\u0900-\u0903\u093a-\u094f])+"  # includes Hindi's vowel signs, which Python's \w omits
# A word, a number with its punctuation, or one character of a script without spaces.
_WORD = re.compile(rf"[\u3040-\u30ff\u3400-\u9fff]|{LETTERS}(?:['’]{LETTERS})*|\d+(?:[.,:/-]\d+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_HANGUL = re.compile(r"[\uac00-\ud7af]")
# A quotation may contain several sentences. If 。, ！ or ？ comes just before its closing mark, the quotation also ends
# the sentence that contains it.
_QUOTATION, _OTHER_CHARACTER = f"(?:{QUOTATION.pattern})", f"(?!{QUOTATION.pattern})[^。！？\n]"
_WIDE_SENTENCE = re.compile(rf"(?:{_OTHER_CHARACTER}|{_QUOTATION}(?<![。！？].))*+(?:{_QUOTATION}|[。！？])?")
# An end of a sentence, with closing quotation marks, before a space. Includes the marks of Arabic and Hindi.
_END = re.compile(r"(?<=[.!?…؟।])(?:[\"'”’“‘»」)\]]|\s»)*\s+")
_LIST_MARK = re.compile(r"\s*\d{1,2}\.")
# Periods that don't end a sentence: those of titles, initials, and abbreviations such as "e.g.".
_NO_END = re.compile(
    r"(?<![^\s(])(?:mr|mrs|ms|dr|prof|st|vs|no|nr|jr|sr|e\.g|i\.e|z\.b|ca|approx|etc|bzw|usw|[A-Z])\.$",
    re.IGNORECASE,
)
_MONTHS = times.any_of(name for language in "de da no cs fi hu".split() for name in times.spelled_months(language))
# Periods within a sentence, given as patterns for the text before and after them: a day before its month ("3. Mai"),
# another ordinal ("im 2. Stock"), an abbreviation before its number ("Sept. 7"), and abbreviations before a lowercase
# letter ("3 p.m. on").
_WITHIN = tuple(
    (re.compile(rf"{before}\.$", re.IGNORECASE), re.compile(after))
    for before, after in (
        (r"\b\d{1,4}", rf"(?i:{_MONTHS})\b"),
        (r"\b(?:(?<!\bi )am|im|vom|zum|der|die|das|dem|den|des|bis) \d{1,2}", r"\w"),
        (r"\b(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|fig|sec|vol|ch|pp)", r"\d"),
        (r"[^\W\d_]\.[^\W\d_]", "[a-zß-öø-ÿа-я]"),
    )
)


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, including numbers."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


@cache
def ignored_words(language: str) -> frozenset[str]:
    """Return a language's stop words. For English, they include chat words and parts of contractions."""
    return stop_words(language) | (word_set("chat words") if language == ENGLISH else frozenset())


@lru_cache(maxsize=2_000)
def language_of(text: str) -> str:
    """Return the language of a text, or `UNKNOWN` for languages without stop words."""
    said = words(text[:SAMPLE])
    letters = sum(word[0].isalpha() for word in said)
    if not letters:
        return ENGLISH
    if by_script := _language_by_script(said, MIN_SCRIPT_SHARE * letters):
        return by_script
    language = certain_language(text[:SAMPLE]) or likely_languages(text[:SAMPLE])[0]
    return language if language in LANGUAGES else UNKNOWN


@cache
def common_words() -> frozenset[str]:
    """Return words that are too common in at least one language to be a topic."""
    of_languages = (
        stop_words(code).union(table_words("first_person", code), table_words("lasting", code)) for code in LANGUAGES
    )
    return word_set("chat words", "general words").union(*of_languages)


def _language_by_script(said: list[str], least: float) -> str:
    """Return the language of the script that at least `least` words are written in, or `UNKNOWN`."""
    if sum(bool(_HANGUL.match(word)) for word in said) >= least:
        return "ko"
    if sum(bool(_WIDE.match(word)) for word in said) < least:
        return UNKNOWN
    return "ja" if any(map(_KANA.match, said)) else "zh"


def content_words(text: str, language: str) -> list[str]:
    """Return the content words of a text, without plural endings."""
    ignored = ignored_words(language)
    return [stem(word) for word in words(text) if word not in ignored and (len(word) > 1 or _WIDE.match(word))]


def stem(word: str) -> str:
    """Remove the most common endings, so that "glazes" and "glaze", or "kiln's" and "kiln", become the same word."""
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def sentences(text: str) -> list[str]:
    """Return the sentences at the beginning of a text, without lists, code and other parts that are too long."""
    text = text[:SENTENCE_TEXT_MAX]
    lines = _WIDE_SENTENCE.findall(text) if _WIDE.search(text) else text.splitlines()
    found = (" ".join(part.split()) for line in lines for part in _divided(line))
    return [sentence for sentence in found if sentence and len(sentence) <= SENTENCE_MAX]


def _divided(line: str) -> Iterator[str]:
    start, is_quoted = 0, in_quotation(line)
    for end in _END.finditer(line):
        is_mark = _LIST_MARK.fullmatch(line, start, end.start())
        if not is_mark and not is_quoted(end.end()) and not _is_within(line, max(start, end.start() - 8), end):
            yield line[start : end.end()]
            start = end.end()
    yield line[start:]


def in_quotation(text: str) -> Callable[[int], bool]:
    """Return a function that checks whether a position is in a quotation. The opening mark is not in it."""
    spans = [found.span() for found in QUOTATION.finditer(text)]
    starts = [start for start, _ in spans]
    return lambda at: (before := bisect_left(starts, at)) > 0 and at < spans[before - 1][1]


def _is_within(line: str, start: int, end: re.Match[str]) -> bool:
    """Return whether punctuation is within a sentence, based on the text before it (from `start`) and after it."""
    return bool(_NO_END.search(line, start, end.start())) or any(
        before.search(line, start, end.start()) and after.match(line, end.end()) for before, after in _WITHIN
    )


def is_wide(text: str) -> bool:
    """Return whether a text contains a script without spaces."""
    return bool(_WIDE.search(text))
