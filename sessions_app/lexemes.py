"""The words that texts are found by: what a text is indexed under, and what a query's words may be indexed under.

Made here and not by PostgreSQL, whose parser and dictionaries know one language at a time and depend on the locale of
the database. Scripts tell most languages apart; a text in Latin letters is told by stop words that one language alone
has, else by its letters' sequences (py3langid).
A word is indexed under its Snowball stem without accents, marked with its language, `de:tocht`, and under its plain
form; an English one under its stem alone, without a mark, as those of scripts that tell the language. What may be one
of several languages is indexed under the stems of each. Where a script has no spaces, or Korean puts endings to words,
each two characters that stand together are a word, as in Lucene's CJK analyzer; a Chinese character is one by itself
too, for many a word is no longer.

A word of a query is looked for in the language of the query, in English, and in its plain form, by which a text in any
other language is met: a name, a word that two languages have, a text whose language was mistaken. A query too short to
tell its language is looked for in all of them.
"""

import re
import threading
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import Stemmer
from py3langid import langid

VERSION = 1  # of what is made here: rows of an older one are indexed again by `index_words`
MAX_CHARS = 50_000  # of a text; a vector's own limit is a megabyte
MAX_WORD = 64  # characters; what is longer is no word
FEW = 3  # words of a query that leave its language in doubt
LIKELY = 0.3  # probability from which on a language is taken for possible
SURE = 0.6  # and below which none is beyond doubt: English is possible as well
CERTAIN = 0.9  # and from which on a query is looked for in no other
DEFAULT = "en"
TOLD_BY = 200  # characters that tell a text's language
TELLING = 2  # stop words of one language and none of another do
ALONE = 0.5  # of its weight has a single character of those that make words of two
POSITIONS = 16_383  # that PostgreSQL tells apart
OCCURRENCES = 255  # of a word that it keeps

_LATIN = {
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "id": "indonesian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "sv": "swedish",
    "tr": "turkish",
}
_OTHERS = {
    "ar": "arabic",
    "el": "greek",
    "fa": "persian",
    "hi": "hindi",
    "hy": "armenian",
    "ru": "russian",
    "ta": "tamil",
}
_STEMMERS = _LATIN | _OTHERS
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u0640\u064b-\u065f\u0670\u200c\u200d\u0900-\u0963\u0966-\u0dff"
_PAIRED = {
    "han": "\u3005\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "hiragana": "\u3041-\u309f",
    "katakana": "\u30a1-\u30fa\u30fc-\u30ff",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3",
    "thai": "\u0e00-\u0e7f",
    "lao": "\u0e80-\u0eff",
    "myanmar": "\u1000-\u109f",
    "khmer": "\u1780-\u17ff",
}
_NO_SPACES = "".join(_PAIRED.values())
_RUN = re.compile(
    "|".join(f"(?P<{name}>[{characters}]+)" for name, characters in _PAIRED.items())
    + f"|(?P<word>(?![{_NO_SPACES}])[^\\W_](?:(?![{_NO_SPACES}])(?:[^\\W_]|[{_MARKS}]))*)"
)
_ASCII_RUN = re.compile(r"[A-Za-z0-9]+")
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
_NO_LATIN = re.compile("[^A-Za-z\u00c0-\u024f\u1e00-\u1eff']+")
# Of letters that are written in several ways, the one that stands for all: before a word is stemmed.
_ONE_WAY = str.maketrans(
    {
        **dict.fromkeys("\u0640\u0670\u200c\u200d\u093c", None),
        **dict.fromkeys(map(chr, range(0x064B, 0x0660)), None),
        **dict.fromkeys("أإآٱ", "ا"),
        "ё": "е",
        "ँ": "ं",
    }
)
# And afterwards: those without an accent that can be taken off.
_PLAIN = str.maketrans(
    {"ı": "i", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "þ": "th", "ى": "ي", "ة": "ه"}
)
_ACCENTS = re.compile("[\u0300-\u036f]")
_PART = re.compile(r'(?P<without>-?)(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')
# Plurals that the stemmers leave apart: luz, luces; limão, limões. The end of a stem, and what stands for it.
_ENDINGS = {"es": ("z", "c"), "pt": ("õ", "ã")}
_TURKISH = str.maketrans({"I": "ı", "İ": "i"})


@dataclass(frozen=True)
class Asked:
    """A word of a query.

    Args:
        word: as it was said.
        stems: what it may be indexed under.
        factor: of its weight.
    """

    word: str
    stems: tuple[str, ...]
    factor: float = 1.0


def load() -> None:
    """Reads what tells languages apart, which is read when first needed otherwise."""
    _identifier()
    _telling_words()


def vector(text: str) -> str:
    """What a text is indexed under, with the places, as PostgreSQL reads a `tsvector`."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, stems in enumerate(_indexed(text[:MAX_CHARS]), start=1):
        for stem in stems:
            if stem and len(places[stem]) < OCCURRENCES:
                places[stem].append(min(place, POSITIONS))
    return " ".join(f"'{stem}':{','.join(map(str, dict.fromkeys(found)))}" for stem, found in places.items())


def asked(text: str) -> list[Asked]:
    """The words of a query, each once."""
    ranked = _ranked(text)
    languages = _likely(ranked)
    runs = list(dict.fromkeys(_runs(text)))
    in_doubt = ranked[0][1] < CERTAIN or len(text.split()) <= FEW
    tried = tuple(dict.fromkeys((*languages, DEFAULT, *(_LATIN if in_doubt else ()))))
    words: dict[str, Asked] = {}
    for word in (word for script, run in runs for word in _asked(script, run, languages, tried)):
        known = words.get(word.stems[0], word)
        stems = tuple(dict.fromkeys((*known.stems, *word.stems)))
        words[word.stems[0]] = Asked(known.word, stems, known.factor)
    return list(words.values())


def whole_words(text: str) -> list[Asked]:
    """The words of a query without those that are a part of another."""
    return [word for word in asked(text) if word.factor == 1]


def first_place(text: str, words: Iterable[Asked]) -> int:
    """Where in a text the first of some words stands, its beginning where none does."""
    wanted = {stem for word in words for stem in word.stems}
    languages = likely_languages(text)
    for script, run in _runs(text):
        parts = _parts(script, run) if script != "word" else _stems_of(run, languages)
        if not wanted.isdisjoint(parts):
            return max(text.find(run), 0)
    return 0


def any_of(text: str) -> tuple[str, float]:
    """A `tsquery` of what has any word of a text, and under how many stems each word is looked for on average."""
    words = asked(text)
    stems = dict.fromkeys(stem for word in words for stem in word.stems)
    return " | ".join(f"'{stem}'" for stem in stems), len(stems) / max(len(words), 1)


def all_of(text: str) -> str:
    """A `tsquery` of what has all words of a text, as people write them to search engines: "one behind the other" in
    quotation marks, `-` before what must not be there, `or` between what may be there instead.
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
    """In which languages the Latin letters of a text may be, the likeliest first; English where they hardly tell."""
    return _likely(_ranked(text))


def _ranked(text: str) -> Sequence[tuple[str, float]]:
    """All languages with their probability, the likeliest first."""
    letters = _NO_LATIN.sub(" ", text[:TOLD_BY]).strip()
    telling = [language for word in letters.casefold().split() if (language := _telling_words().get(word))]
    if len(telling) >= TELLING and len(set(telling)) == 1:
        return [(telling[0], 1.0)]
    return _identifier().rank(letters) if letters else [(DEFAULT, 1.0)]


def _likely(ranked: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    likely = [language for language, probability in ranked if probability >= LIKELY]
    return tuple(dict.fromkeys(likely if ranked[0][1] >= SURE else [*likely, DEFAULT]))


# --- a text ---


def _indexed(text: str) -> Iterator[Iterable[str]]:
    """Of each place in a text what it is indexed under."""
    languages = likely_languages(text)
    for script, run in _runs(text):
        if script == "word":
            yield _stems_of(run, languages)
        else:
            yield from ((part,) for part in _parts(script, run))


def _runs(text: str) -> Iterable[tuple[str, str]]:
    """The stretches of a text without a space, each with its script; those of letters have the script `word`."""
    if text.isascii():
        return (("word", run) for run in _ASCII_RUN.findall(text))
    text = unicodedata.normalize("NFKC", text).replace("·", " ")
    return ((match.lastgroup or "", match[0]) for match in _RUN.finditer(text))


@lru_cache(maxsize=20_000)
def _stems_of(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """What a word is indexed under, in a text of these languages; nothing where it says nothing."""
    if len(word) > MAX_WORD:
        return ()
    is_latin = _is_latin(word)
    languages = languages if is_latin else (_language_by_script(word),)
    plain = _plain(_one_way(word))
    if not languages[0] or any(map(str.isdigit, word)):
        return (plain,)
    if _is_stop_word(word, languages[0]):
        return ()
    stems = (_stem(word, language) for language in languages if not _is_stop_word(word, language))
    return tuple(dict.fromkeys((*stems, plain) if is_latin and DEFAULT not in languages else stems))


def _parts(script: str, run: str) -> Iterator[str]:
    """Pairs of characters that stand together, and of Chinese ones each."""
    run = _TONES.sub("", run)
    yield from (run[place : place + 2] for place in range(len(run) - 1))
    if script == "han" or (len(run) == 1 and script != "hiragana"):
        yield from run


# --- a query ---


def _asked(script: str, run: str, languages: tuple[str, ...], tried: tuple[str, ...]) -> Iterator[Asked]:
    if script != "word":
        for part in _parts(script, run):
            yield Asked(part, (part,), ALONE if len(part) < len(run) and len(part) == 1 else 1.0)
    elif stems := _stems_of(run, languages) and _looked_for(run, tried):
        yield Asked(run.casefold(), stems)


def _phrase(text: str, joined: str) -> str:
    """What has the words of a text, joined so."""
    any_form = (" | ".join(f"'{stem}'" for stem in word.stems) for word in whole_words(text))
    return joined.join(f"({forms})" for forms in any_form)


@lru_cache(maxsize=20_000)
def _looked_for(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """All that a word may be indexed under; also if its accents were left out, and as PostgreSQL's English dictionary
    has it, by which older versions indexed.
    """
    bare = _plain(word.casefold())
    stems = dict.fromkeys(_stems_of(word, (languages[0],)))
    for language in languages if _is_latin(word) else ():
        for form in (word, bare):
            stems |= dict.fromkeys(_stems_of(form, (language,)))
    if _is_latin(word):
        stems[bare] = None
    if not word.isascii():
        stems[_stemmed(DEFAULT, word.casefold())] = None
    return tuple(stems)


# --- a word ---


def _stem(word: str, language: str) -> str:
    """A word's stem in a language, without accents, and marked where its letters are those of several languages."""
    stem = _stemmed(language, _one_way(word.translate(_TURKISH) if language == "tr" else word))
    end, instead = _ENDINGS.get(language, ("", ""))
    stem = _plain(stem.removesuffix(end) + instead if end and stem.endswith(end) else stem)
    return f"{language}:{stem}" if language in _LATIN and language != DEFAULT else stem


def _one_way(word: str) -> str:
    """A word in small letters, each written in the one way."""
    return unicodedata.normalize("NFC", word.casefold()).translate(_ONE_WAY)


def _plain(word: str) -> str:
    """A word without the accents of Latin and Greek letters."""
    if word.isascii():
        return word
    if "\u0400" <= word[0] <= "\u1dff":  # elsewhere a mark may make another letter
        return word.translate(_PLAIN)
    return _ACCENTS.sub("", unicodedata.normalize("NFD", word)).translate(_PLAIN)


def _is_latin(word: str) -> bool:
    return word.isascii() or "LATIN" in unicodedata.name(word[0], "")


def _language_by_script(word: str) -> str:
    return next((language for language, letters in _SCRIPTS if letters.search(word)), "")


def _is_stop_word(word: str, language: str) -> bool:
    return word.casefold() in _stop_words().get(language, ())


@cache
def _stop_words() -> dict[str, frozenset[str]]:
    lines = (Path(__file__).parent / "stop_words.txt").read_text().splitlines()
    words: dict[str, list[str]] = defaultdict(list)
    for language, _, listed in (line.partition(": ") for line in lines if not line.startswith("#")):
        words[language] += listed.split()
    return {language: frozenset(listed) for language, listed in words.items()}


@cache
def _telling_words() -> dict[str, str]:
    """Stop words in Latin letters that one language alone has, with that language."""
    languages: dict[str, list[str]] = defaultdict(list)
    for language in _LATIN:
        for word in _stop_words()[language]:
            languages[word].append(language)
    return {word: told[0] for word, told in languages.items() if len(told) == 1}


_local = threading.local()  # a stemmer serves one thread at a time


def _stemmed(language: str, word: str) -> str:
    stemmers: dict[str, Stemmer.Stemmer] = _local.__dict__
    if language not in stemmers:
        stemmers[language] = Stemmer.Stemmer(_STEMMERS[language])
    return stemmers[language].stemWord(word) or word


@cache
def _identifier() -> langid.LanguageIdentifier:
    """What tells languages by the sequences of their letters; it takes half a second to load."""
    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    identifier.set_languages(list(_LATIN))
    return identifier
