"""Full-text search: compute the stems under which a text is indexed, and the stems that a query searches for.

Python computes them because PostgreSQL's parser and dictionaries support one language at a time and depend on the
locale of the database. The script identifies most languages. The language of a text in Latin letters is identified by
stop words that only one language has, or else by its sequences of letters (py3langid).

A word is indexed under its Snowball stem without accents, marked with its language (`de:tocht`), and under its plain
form. English words, and words in scripts that identify the language, only have an unmarked stem in the index. A text
that may be in several languages is indexed under the stems of each language. In scripts without spaces, and in Korean,
which adds endings to words, each pair of adjacent characters is a word, as in Lucene's CJK analyzer. A single Chinese
character is a word too, because many words have only one.

A query searches for each of its words in the query's language, in English, and in the plain form. The plain form also
finds names, words that two languages share, and texts whose language was misjudged. If a query is too short to identify
its language, it searches in all languages.
"""

import re
import threading
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import Stemmer

if TYPE_CHECKING:
    from py3langid import langid

LATIN_MODEL = Path(__file__).with_name("latin.npz")  # py3langid's model, reduced by tests/support/latin_model.py
VERSION = 1  # version of the stems; `index_words` reindexes rows of older versions
MAX_CHARS = 50_000  # maximum indexed characters of a text; PostgreSQL limits a vector to a megabyte
QUERY_MAX_CHARS = 4_000  # maximum length of a query in all interfaces
MAX_WORD = 64  # maximum characters of a word
FEW_WORDS = 3  # a query with at most this many words is too short to identify its language
LIKELY = 0.3  # less likely languages are ignored
SURE = 0.6  # if no language is at least this likely, English is also considered
CERTAIN = 0.9  # if a language is at least this likely, a query searches in no other language
DEFAULT = "en"
SAMPLE_CHARS = 200  # characters of a text that are used to identify its language
SAMPLE_TEXTS = 5  # number of a conversation's longest texts that are used to identify its languages
MIN_SCRIPT_SHARE = 0.7  # minimum share of words in the same script to identify a text's script
MIN_DISTINCTIVE = 2  # minimum number of distinctive stop words that identify a language
SINGLE_FACTOR = 0.5  # weight factor of a single character, in scripts whose words are pairs of characters
POSITIONS = 16_383  # maximum position that PostgreSQL stores
OCCURRENCES = 255  # maximum number of a word's positions that PostgreSQL stores
MAX_CACHED = 20_000  # maximum words whose stems are cached, per choice of languages
_PLACES = [str(place) for place in range(1, POSITIONS + 1)]

# Languages whose letters are Latin. Their codes are also the names of Snowball's stemmers.
_LATIN = ("cs", "da", "de", "en", "es", "fi", "fr", "hu", "id", "it", "nl", "no", "pl", "pt", "ro", "sv", "tr")
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u0640\u064b-\u065f\u0670\u200c\u200d\u0900-\u0963\u0966-\u0dff"
_PAIR_SCRIPTS = {
    "han": "\u3005\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "hiragana": "\u3041-\u309f",
    "katakana": "\u30a1-\u30fa\u30fc-\u30ff",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3",
    "thai": "\u0e00-\u0e7f",
    "lao": "\u0e80-\u0eff",
    "myanmar": "\u1000-\u109f",
    "khmer": "\u1780-\u17ff",
}
_NO_SPACES = "".join(_PAIR_SCRIPTS.values())
_RUN = re.compile(
    "|".join(f"(?P<{name}>[{characters}]+)" for name, characters in _PAIR_SCRIPTS.items())
    + f"|(?P<word>(?![{_NO_SPACES}])[^\\W_](?:(?![{_NO_SPACES}])(?:[^\\W_]|[{_MARKS}]))*)"
)
_SIGNS = re.compile(f"[^\\w{_MARKS}{_NO_SPACES}\x00-\x7f]+")  # dashes, typographic quotation marks, emoji
# Translation tables that replace the characters that are not part of words with spaces. Translating and splitting ASCII
# text is twice as fast as using a regular expression.
_ASCII = [chr(code) for code in range(128)]
_WORDS_ALONE = "".join(character if character.isalnum() else " " for character in _ASCII)
_LETTERS_ALONE = "".join(character if character.isalpha() or character == "'" else " " for character in _ASCII)
_TONES = re.compile("[\u0e47-\u0e4e\u0ec8-\u0ecd]")
_SCRIPTS = (
    ("ru", re.compile("[\u0400-\u052f]")),
    ("fa", re.compile("[\u067e\u0686\u0698\u06a9\u06af\u06cc]")),
    ("ar", re.compile("[\u0600-\u06ff\u0750-\u077f]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("el", re.compile("[\u0370-\u03ff\u1f00-\u1fff]")),
    ("hy", re.compile("[\u0530-\u058f]")),
    ("ta", re.compile("[\u0b80-\u0bff]")),
)
# Normalizing takes quadratic time in the number of adjacent combining marks. Unicode's stream-safe format allows 30.
_MANY_MARKS = re.compile(r"([^\w\s]{30})[^\w\s]+")
_LATIN_RUN = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff']+")
# Letters with several spellings are unified before a word is stemmed.
_SPELLINGS = str.maketrans(
    {
        **dict.fromkeys("\u0640\u0670\u200c\u200d\u093c", None),
        **dict.fromkeys(map(chr, range(0x064B, 0x0660)), None),
        **dict.fromkeys("أإآٱ", "ا"),
        "ё": "е",
        "ँ": "ं",
    }
)
# These letters are replaced after stemming, because Unicode doesn't decompose them.
_PLAIN = str.maketrans(
    {"ı": "i", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "þ": "th", "ى": "ي", "ة": "ه"}
)
_ACCENTS = re.compile("[\u0300-\u036f]")
_PART = re.compile(r'(?P<without>-?)(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')
# Replacements of stems' endings. They unify plurals that the stemmers don't unify: luz, luces; limão, limões.
_ENDINGS = {"es": ("z", "c"), "pt": ("õ", "ã")}
_TURKISH = str.maketrans({"I": "ı", "İ": "i"})


@dataclass(frozen=True)
class QueryWord:
    """A word of a query."""

    word: str  # as written in the query
    stems: tuple[str, ...]  # stems to search for
    factor: float = 1.0


def load() -> None:
    """Load the language models now instead of on first use."""
    _identifier()
    _distinctive_words()


def vector(text: str) -> str:
    """Return the stems under which a text is indexed, with their positions, in the syntax of a `tsvector`."""
    found: dict[str, list[str]] = defaultdict(list)
    # Optimized, because this loop takes half of the time to store a text.
    for place, stems in zip(chain(_PLACES, repeat(_PLACES[-1])), _indexed(text[:MAX_CHARS]), strict=False):
        for stem in stems:
            found[stem].append(place)
    return " ".join([f"'{stem}':{','.join(places[:OCCURRENCES])}" for stem, places in found.items()])


def stems_in(text: str, languages: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the stems under which a text is indexed, by default in its possible languages."""
    return frozenset(chain.from_iterable(_indexed(text[:MAX_CHARS], languages)))


def normal_form(text: str) -> str:
    """Return a text in the normal form NFKC. Cut runs of more than 30 marks to 30."""
    return unicodedata.normalize("NFKC", _MANY_MARKS.sub(r"\1", text))


def split_stem(stem: str) -> tuple[str, str]:
    """Split a stem into its language prefix, which may be blank, and the rest."""
    language, _, bare = stem.rpartition(":")
    return language, bare


def certain_language(text: str) -> str:
    """Return the language of a text, or its script if the script identifies no language. Blank if it isn't certain."""
    scripts = Counter(
        (_language_by_script(run) or ("" if _is_latin(run) else "other")) if script == "word" else "cjk"
        for script, run in _runs(text[:SAMPLE_CHARS])
        if not run.isdigit()
    )
    if not scripts:
        return ""
    script, count = scripts.most_common(1)[0]
    if count < MIN_SCRIPT_SHARE * scripts.total():
        return ""
    if script:
        return script
    language, probability = _ranked(text)[0]
    return language if probability >= CERTAIN else ""


def words_of_query(text: str, max_words: int | None = None) -> list[QueryWord]:
    """Return the distinct words of a query.

    If there are more than `max_words` words, return those at the start and the end, where the question usually is.
    """
    return list(_words_of_query(text, max_words))


@lru_cache(maxsize=64)  # building a context calls this twice for the same query
def _words_of_query(text: str, max_words: int | None) -> Sequence[QueryWord]:
    ranked = _ranked(text)
    languages = _likely(ranked)
    runs = list(dict.fromkeys(_runs(text)))
    if max_words and len(runs) > max_words:
        runs = list(dict.fromkeys(chain.from_iterable(zip(runs, reversed(runs), strict=True))))
    in_doubt = ranked[0][1] < CERTAIN or len(text.split()) <= FEW_WORDS
    tried = tuple(dict.fromkeys((*languages, DEFAULT, *(_LATIN if in_doubt else ()))))
    words: dict[str, QueryWord] = {}
    for word in (word for script, run in runs for word in _words_of_run(script, run, languages, tried)):
        if len(words) == max_words and word.stems[0] not in words:
            break
        known = words.get(word.stems[0], word)
        stems = tuple(dict.fromkeys((*known.stems, *word.stems)))
        words[word.stems[0]] = QueryWord(known.word, stems, known.factor)
    return tuple(words.values())


def whole_words(text: str) -> list[QueryWord]:
    """Return the words of a query, without single characters that are part of other words."""
    return [word for word in words_of_query(text) if word.factor == 1]


def occurrences(text: str, words: Iterable[QueryWord]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each occurrence of the words in a text, in any inflected form."""
    wanted = {stem for word in words for stem in word.stems}
    stems = _stems_in(likely_languages(text))
    end = 0
    for script, run in _runs(text):
        start = text.find(run, end)
        if start < 0:  # the run is only in the text's normal form
            continue
        end = start + len(run)
        parts = _parts(script, run) if script != "word" else stems[run]
        if not wanted.isdisjoint(parts):
            yield start, end


def any_word_query(text: str, max_words: int) -> tuple[str, float]:
    """Return a `tsquery` that matches texts with any word of a text, and the average number of stems per word.

    Uses at most `max_words` words.
    """
    words = words_of_query(text, max_words)
    stems = dict.fromkeys(stem for word in words for stem in word.stems)
    return " | ".join(f"'{stem}'" for stem in stems), len(stems) / max(len(words), 1)


def all_words_query(text: str) -> str:
    """Return a `tsquery` that matches all words of a text, and supports the syntax of search engines.

    Words in quotation marks must be adjacent, a word after `-` must not occur, and `or` separates alternatives.
    """
    found, joined = "", " & "
    for part in _PART.finditer(text):
        if part[0].casefold() == "or" and found:
            joined = " | "
        elif query := _phrase(part["phrase"] or part["word"] or "", " <-> " if part["phrase"] else " & "):
            found = (found and found + joined) + ("!" if part["without"] else "") + f"({query})"
            joined = " & "
    return found


def likely_languages(text: str) -> tuple[str, ...]:
    """Return the possible languages of a text's Latin letters, likeliest first. If in doubt, add English."""
    return _likely(_ranked(text))


def languages_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the possible languages of related texts. Uses the longest texts, because short ones are ambiguous."""
    longest = sorted(texts, key=len, reverse=True)[:SAMPLE_TEXTS]
    return tuple(dict.fromkeys(language for text in longest for language in likely_languages(text)))


def _ranked(text: str) -> Sequence[tuple[str, float]]:
    return _ranked_sample(text[:SAMPLE_CHARS])


@lru_cache(maxsize=16)  # one search calls this three times for the same query
def _ranked_sample(text: str) -> Sequence[tuple[str, float]]:
    runs = _latin_runs(text)
    telling = list(filter(None, map(_distinctive_words().get, " ".join(runs).casefold().split())))
    if len(telling) >= MIN_DISTINCTIVE and len(set(telling)) == 1:
        return [(telling[0], 1.0)]
    return _identifier().rank(" ".join(runs)) if runs else [(DEFAULT, 1.0)]


def _latin_runs(text: str) -> list[str]:
    return text.translate(_LETTERS_ALONE).split() if text.isascii() else _LATIN_RUN.findall(text)


def _likely(ranked: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    likely = [language for language, probability in ranked if probability >= LIKELY]
    return tuple(dict.fromkeys(likely if ranked[0][1] >= SURE else [*likely, DEFAULT]))


# --- a text ---


def _indexed(text: str, languages: tuple[str, ...] = ()) -> Iterable[Iterable[str]]:
    """Return the stems at each position of a text, by default in the text's possible languages."""
    stems = _stems_in(languages or likely_languages(text))
    text = _without_signs(text)
    if text.isascii():
        return map(stems.__getitem__, _ascii_runs(text))
    return chain.from_iterable(
        [stems[run]] if script == "word" else ((part,) for part in _parts(script, run))
        for script, run in _runs_without_signs(text)
    )


def _runs(text: str) -> Iterable[tuple[str, str]]:
    """Split a text into runs of characters of the same script. Return (script, run) for each.

    The script is `word` for all scripts that separate words by spaces.
    """
    return _runs_without_signs(_without_signs(text))


def _without_signs(text: str) -> str:
    """Return a text in its normal form, with spaces instead of signs. Most English texts are ASCII then."""
    return text if text.isascii() else _SIGNS.sub(" ", normal_form(text))


def _runs_without_signs(text: str) -> Iterable[tuple[str, str]]:
    if text.isascii():
        return (("word", run) for run in _ascii_runs(text))
    return ((match.lastgroup or "", match[0]) for match in _RUN.finditer(text))


def _ascii_runs(text: str) -> list[str]:
    return text.translate(_WORDS_ALONE).split()


class _Stems(dict[str, tuple[str, ...]]):
    """A cache of the stems of words, in texts that may be in these languages, likeliest first."""

    def __init__(self, languages: tuple[str, ...]) -> None:
        self._languages = languages

    def __missing__(self, word: str) -> tuple[str, ...]:
        if len(self) >= MAX_CACHED:
            self.clear()
        stems = self[word] = _stems_of(word, self._languages)
        return stems


_stems_in = lru_cache(maxsize=64)(_Stems)


def _stems_of(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stems of a word in a text of these languages. A stop word has no stems."""
    if len(word) > MAX_WORD:
        return ()
    is_latin = _is_latin(word)
    languages = languages if is_latin else (_language_by_script(word),)
    plain = _plain(_unify_spelling(word))
    if not languages[0] or any(map(str.isdigit, word)):
        return (plain,) if plain else ()
    if _is_stop_word(word, languages[0]):
        return ()
    stems = (_stem(word, language) for language in languages if not _is_stop_word(word, language))
    return tuple(filter(None, dict.fromkeys((*stems, plain) if is_latin and DEFAULT not in languages else stems)))


def _parts(script: str, run: str) -> Iterator[str]:
    """Yield the pairs of adjacent characters of a run, and for Chinese also the single characters."""
    run = _TONES.sub("", run)
    yield from (run[place : place + 2] for place in range(len(run) - 1))
    if script == "han" or (len(run) == 1 and script != "hiragana"):
        yield from run


# --- a query ---


def _words_of_run(script: str, run: str, languages: tuple[str, ...], tried: tuple[str, ...]) -> Iterator[QueryWord]:
    if script != "word":
        for part in _parts(script, run):
            yield QueryWord(part, (part,), SINGLE_FACTOR if len(part) < len(run) and len(part) == 1 else 1.0)
    elif stems := _stems_in(languages)[run] and _query_stems(run, tried):
        yield QueryWord(run.casefold(), stems)


def _phrase(text: str, joined: str) -> str:
    any_form = (" | ".join(f"'{stem}'" for stem in word.stems) for word in whole_words(text))
    return joined.join(f"({forms})" for forms in any_form)


@lru_cache(maxsize=20_000)
def _query_stems(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """Return all stems that the index may contain for a word.

    They include the stems of the word without accents. Older versions indexed its English stem with accents, which is
    also included.
    """
    bare = _plain(word.casefold())
    stems = dict.fromkeys(_stems_of(word, (languages[0],)))
    for language in languages if _is_latin(word) else ():
        for form in {word: None, bare: None}:
            stems |= dict.fromkeys(_stems_of(form, (language,)))
    if _is_latin(word):
        stems[bare] = None
    if not word.isascii():
        stems[_stemmed(DEFAULT, word.casefold())] = None
    return tuple(stems)


# --- a word ---


def _stem(word: str, language: str) -> str:
    """Return a word's stem in a language, without accents.

    In languages with Latin letters, except English, the stem has the language as prefix.
    """
    stem = _stemmed(language, _unify_spelling(word.translate(_TURKISH) if language == "tr" else word))
    end, instead = _ENDINGS.get(language, ("", ""))
    stem = _plain(stem.removesuffix(end) + instead if end and stem.endswith(end) else stem)
    return f"{language}:{stem}" if language in _LATIN and language != DEFAULT else stem


def _unify_spelling(word: str) -> str:
    return unicodedata.normalize("NFC", word.casefold()).translate(_SPELLINGS)


def _plain(word: str) -> str:
    """Return a word without the accents of Latin and Greek letters."""
    if word.isascii():
        return word
    if "\u0400" <= word[0] <= "\u1dff":  # in these scripts, a mark can turn a letter into another one
        return word.translate(_PLAIN)
    return _ACCENTS.sub("", unicodedata.normalize("NFD", word)).translate(_PLAIN)


def _is_latin(word: str) -> bool:
    return word.isascii() or "LATIN" in unicodedata.name(word[0], "")


def _language_by_script(word: str) -> str:
    if word.isascii():
        return ""
    return next((language for language, letters in _SCRIPTS if letters.search(word)), "")


def _is_stop_word(word: str, language: str) -> bool:
    return word.casefold() in stop_words(language)


def stop_words(language: str) -> frozenset[str]:
    """Return the most common words of a language, or none if there is no list for it."""
    return _stop_words().get(language, frozenset())


@cache
def _stop_words() -> dict[str, frozenset[str]]:
    lines = (Path(__file__).parent / "stop_words.txt").read_text().splitlines()
    words: dict[str, list[str]] = defaultdict(list)
    for language, _, listed in (line.partition(": ") for line in lines if not line.startswith("#")):
        words[language] += listed.split()
    return {language: frozenset(listed) for language, listed in words.items()}


@cache
def _distinctive_words() -> dict[str, str]:
    """Return the stop words in Latin letters that only one language has, with their language."""
    languages: dict[str, list[str]] = defaultdict(list)
    for language in _LATIN:
        for word in _stop_words()[language]:
            languages[word].append(language)
    return {word: having[0] for word, having in languages.items() if len(having) == 1}


_local = threading.local()  # a stemmer isn't thread-safe


def _stemmed(language: str, word: str) -> str:
    stemmers: dict[str, Stemmer.Stemmer] = _local.__dict__
    if language not in stemmers:
        stemmers[language] = Stemmer.Stemmer(language)
    return stemmers[language].stemWord(word) or word


@cache
def _identifier() -> "langid.LanguageIdentifier":
    import numpy  # imported here because only indexing needs it
    from py3langid import langid

    with numpy.load(LATIN_MODEL) as model:
        moves, rows = (array("H", model[name].tobytes()) for name in ("moves", "rows"))
        figures = model["figures"], model["priors"], model["languages"].tolist(), moves, model["features"].tolist()
    return langid.LanguageIdentifier(*figures, norm_probs=True, tk_row=rows)
