"""Find a person named with a relationship: "my sister Anna", "Dr. Weiss is my dentist", "Nora's son Tim".

Each language has a few short patterns. A sentence that matches none of them names no person.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from moments_app.engines import times
from moments_app.engines.statements.first_person import SPEAKER
from sessions_app.lexemes import DEFAULT, stop_words

_PROPER = r"(?!I\b)[A-ZÀ-ÞĀ-ŽА-ЯЁ](?:[\w’'-]*\w)?"
_TITLE = r"(?:Dr|Mr|Mrs|Ms|Prof|Professor|Herrn?|Frau|Señora?|Madame|Monsieur|Mme)\b\.?"
_NAMED = rf"(?P<name>(?:{_TITLE} )?{_PROPER}(?: {_PROPER})?)"
_AFTER_NAME = r"(?:['’]s)?(?!\w)"
_POSSESSIVE = re.compile(r"['’]s$|['’]$")
_TITLED = re.compile(rf"^{_TITLE} ")
_HAN = r"\u4e00-\u9fff"
_WHOLE = re.compile(rf"(?:{_TITLE} )?{_PROPER}(?: {_PROPER})*|[{_HAN}]{{2,4}}")
_FEW = r"(?:[a-zß-öø-ÿ][\w-]* ){0,2}?"  # "my little sister", "my new boss"
_NO_NAMES = frozenset(map(str.title, (*times.names("month_name"), *times.names("weekday"))))
NAME_MAX = 255
USER = ("User", "The user", "user")  # names for the user in their own memory


class NamedPerson(NamedTuple):
    """A person whom a sentence names.

    Args:
        name: as written in the sentence.
        relationship: what they are to the owner, in English.
        owner: the person to whom they are related: a name, or blank for the speaker.
    """

    name: str
    relationship: str
    owner: str = ""


def _words() -> dict[str, dict[str, str]]:
    """Return the relationships by their words, by language."""
    lines = (Path(__file__).parent / "relationships.txt").read_text(encoding="utf-8").splitlines()
    listed = (line.split(": ", 1) for line in lines if not line.startswith("#"))
    return {language: dict(entry.split("=") for entry in words.split()) for language, words in listed}


_WORDS = _words()
_BY_WORD = {word.casefold(): relationship for words in _WORDS.values() for word, relationship in words.items()}


def _of(language: str, ending: str = "") -> str:
    words = sorted(_WORDS[language], key=len, reverse=True)
    return rf"(?P<word>{'|'.join(map(re.escape, words))}){ending}"


_OWNER = rf"(?:\b(?:[Mm]y|[Oo]ur)|(?<![\w])(?P<owner>(?:The user|{_PROPER})))(?(owner)['’]s|) {_FEW}{_of('en')}"
_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        # English
        rf"{_OWNER}(?:['’]s (?:first )?name)? (?:is|was) (?:actually |now )?(?:called |named ){_NAMED}",
        rf"{_OWNER}['’]s (?:first )?name is (?:actually |now )?{_NAMED}",
        rf"{_OWNER},? (?:called |named )?{_NAMED}{_AFTER_NAME}",
        rf"{_NAMED} (?:is|was) {_OWNER}\b(?!['’]s)",
        rf"(?:\bI(?:['’]ve| have)?|(?P<owner>The user|{_PROPER}) has) (?:got |have )?an? {_FEW}{_of('en')} "
        rf"(?:called|named) {_NAMED}",
        # German
        rf"\b(?:[Mm]ein|[Uu]nser)(?:e[mnrs]?)? {_FEW}{_of('de')} (?:heißt|heisst) {_NAMED}",
        # Nouns are capitalized, so only the position distinguishes names from nouns: "weil meine Frau Urlaub hat".
        rf"^(?:Mein|Unser)e? {_FEW}{_of('de')} {_NAMED}",
        # Spanish
        rf"\b(?:[Mm]i|[Nn]uestr[ao]) {_of('es')}(?: \w+)?? se llama {_NAMED}",
        rf"\b(?:[Mm]i|[Nn]uestr[ao]) {_of('es')},? {_NAMED}",
        # French
        rf"\b(?:[Mm](?:a|on)|[Nn]otre) (?:\w+ )??{_of('fr')} s['’]appelle {_NAMED}",
        rf"\b(?:[Mm](?:a|on)|[Nn]otre) (?:\w+ )??{_of('fr')},? {_NAMED}",
        # Chinese: the end of a name is only known if it ends a phrase
        rf"我(?:们)?(?:的)?{_of('zh')}(?:的名字)?(?:名叫|名字叫|叫做?|是)"
        rf"(?P<name>[{_HAN}]{{2,4}}|{_PROPER})(?=[，,。.！!；;、\s]|$)",
        # Russian
        rf"\b[Мм]о(?:[яйюе]|его|ему|ей) {_of('ru', r'[а-яё]{0,3}')} зовут {_NAMED}",
        rf"\b[Мм]о(?:[яйюе]|его|ему|ей) {_of('ru', r'[а-яё]{0,3}')},? {_NAMED}",
    )
]


@lru_cache(maxsize=2_000)  # a statement is parsed when it is added, and again with the person's other statements
def named_person(text: str) -> NamedPerson | None:
    """Return the person whom a sentence names with a relationship to the speaker or to another person.

    Args:
        text: a sentence, with or without its speaker in front.
    """
    line = SPEAKER.match(text)
    said = text[line.end() :] if line else text
    for pattern in _PATTERNS:
        for found in pattern.finditer(said):
            name = _POSSESSIVE.sub("", found["name"])
            if _is_name(name, begins=found.start("name") == 0):
                owner = found.groupdict().get("owner") or ""
                return NamedPerson(name[:NAME_MAX], _BY_WORD[found["word"].casefold()], owner)
    return None


def _is_name(text: str, *, begins: bool) -> bool:
    """Return whether a capitalized word is a name. The first word of a sentence, such as "This", need not be one."""
    first = text.split(" ")[0]
    return first not in _NO_NAMES and not (begins and first.lower() in stop_words(DEFAULT))


def is_proper_name(text: str) -> bool:
    """Return whether a text is only a name: "Anna Berg", not "the trip" or "I"."""
    return _WHOLE.fullmatch(text) is not None and _is_name(text, begins=True)


def short_name(name: str) -> str:
    """Return the short form of a name: without the title, or the first of two names; blank if there is none."""
    if title := _TITLED.match(name):
        return name[title.end() :]
    first, _, last = name.partition(" ")
    return first if last else ""
