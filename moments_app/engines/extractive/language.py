"""Words and sentences of a text, and the language it is in; nothing to train and nothing to download."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache

from moments_app.engines import times
from moments_app.engines.tables import word_set, words_of
from sessions_app.lexemes import certain_language, likely_languages, stop_words

ENGLISH = "en"
UNKNOWN = ""  # nothing is known of the language but where its sentences end
# Those with stop words. On a tie the first counts: the list begins with English.
LANGUAGES = (
    *(ENGLISH, "de", "fr", "es", "it", "nl", "sv", "da", "no", "pt", "pl", "fi", "cs", "hu", "id", "ro", "tr"),
    *("ar", "el", "hi", "ru"),
)
SENTENCE_TEXT_MAX = 4_000  # characters of one text that are split into sentences
SENTENCE_MAX = 400  # characters; a longer "sentence" is a list, code or no prose at all
MOSTLY = 0.5  # share of a text's words in a script that makes it one of that script
SAMPLE = 1_000  # characters of a text that tell its language

LETTERS = r"(?:[^\W\d_]|[\u0900-\u0903\u093a-\u094f])+"  # with the vowel signs of Hindi, no letters for Python
# A word, a number with its punctuation, or one character of a script that puts no spaces between words.
_WORD = re.compile(rf"[\u3040-\u30ff\u3400-\u9fff]|{LETTERS}(?:['’]{LETTERS})*|\d+(?:[.,:/-]\d+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_HANGUL = re.compile(r"[\uac00-\ud7af]")
_WIDE_SENTENCE = re.compile(r"[^。！？\n]+[。！？]?")
# An end of a sentence, with what closes a quotation, before a space; the mark of Arabic and Hindi, too.
_END = re.compile(r"(?<=[.!?…؟।])[\"'”’)\]]*\s+")
_LIST_MARK = re.compile(r"\s*\d{1,2}\.")
# What a point follows that ends no sentence: titles, "e.g.", an initial.
_NO_END = re.compile(
    r"(?<![^\s(])(?:mr|mrs|ms|dr|prof|st|vs|no|nr|jr|sr|e\.g|i\.e|z\.b|ca|approx|etc|bzw|usw|[A-Z])\.$",
    re.IGNORECASE,
)
_MONTHS = times.any_of(name for language in "de da no cs fi hu".split() for name in times.spelled_months(language))
# Points within a sentence, by what stands on both sides: a day before its month ("3. Mai"), another ordinal ("im 2.
# Stock"), what is short before its number ("Sept. 7"), and letters with points before a small one ("3 p.m. on").
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
    """Return the words of a text in lower case, numbers among them."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


@cache
def ignored_words(language: str) -> frozenset[str]:
    """Return words that carry no content, and what is left of English contractions."""
    return stop_words(language) | (word_set("chat words") if language == ENGLISH else frozenset())


@lru_cache(maxsize=2_000)
def language_of(text: str) -> str:
    """Return the language of a text; `UNKNOWN` when it is in none with stop words.

    A turn is read by itself: its language doesn't depend on the turns around it.
    """
    said = words(text[:SAMPLE])
    letters = sum(word[0].isalpha() for word in said)
    if not letters:
        return ENGLISH
    if by_script := _language_by_script(said, MOSTLY * letters):
        return by_script
    language = certain_language(text[:SAMPLE]) or likely_languages(text[:SAMPLE])[0]
    return language if language in LANGUAGES else UNKNOWN


def is_common(word: str) -> bool:
    """Return whether a word is a common one of some language, and so names no subject."""
    return word in _common_words()


@cache
def _common_words() -> frozenset[str]:
    of_languages = (
        stop_words(code).union(words_of("first_person", code), words_of("lasting", code)) for code in LANGUAGES
    )
    return word_set("chat words").union(*of_languages)


def _language_by_script(said: list[str], least: float) -> str:
    """Return the language that words are in by their script alone, of which there are so many at least."""
    if sum(bool(_HANGUL.match(word)) for word in said) >= least:
        return "ko"
    if sum(bool(_WIDE.match(word)) for word in said) < least:
        return UNKNOWN
    return "ja" if any(map(_KANA.match, said)) else "zh"


def content_words(text: str, language: str) -> list[str]:
    """Return the words that say what a text is about, plurals cut."""
    ignored = ignored_words(language)
    return [stem(word) for word in words(text) if word not in ignored and (len(word) > 1 or _WIDE.match(word))]


def stem(word: str) -> str:
    """Cut the commonest endings, so that "glazes" and "glaze", "kiln's" and "kiln" are one word."""
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, or of the beginning of a very long one.

    What is too long for a sentence is a list, code or no prose at all, and is left out.
    """
    text = text[:SENTENCE_TEXT_MAX]
    lines = _WIDE_SENTENCE.findall(text) if _WIDE.search(text) else text.splitlines()
    found = (" ".join(part.split()) for line in lines for part in _divided(line))
    return [sentence for sentence in found if sentence and len(sentence) <= SENTENCE_MAX]


def _divided(line: str) -> Iterator[str]:
    """Yield the sentences of a line."""
    start = 0
    for end in _END.finditer(line):
        is_mark = _LIST_MARK.fullmatch(line, start, end.start())
        if not is_mark and not _is_within(line, max(start, end.start() - 8), end):
            yield line[start : end.end()]
            start = end.end()
    yield line[start:]


def _is_within(line: str, start: int, end: re.Match[str]) -> bool:
    """Tell whether a sentence goes on behind a mark, by what stands before it from a place on, and after it."""
    return bool(_NO_END.search(line, start, end.start())) or any(
        before.search(line, start, end.start()) and after.match(line, end.end()) for before, after in _WITHIN
    )


def is_wide(text: str) -> bool:
    """Tell whether a text has a script that puts no spaces between words."""
    return bool(_WIDE.search(text))
