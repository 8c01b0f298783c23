"""Find a person named with a relationship: "my sister Anna", "Dr. Weiss is my dentist", "Nora's son Tim".

`tables/named_people.txt` has a few short patterns per language. Sentences that match no pattern are ignored.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from moments_app.engines import times
from moments_app.engines.statements import SPEAKER
from moments_app.engines.tables import filled, table_lines
from sessions_app.lexemes import DEFAULT, stop_words

_PROPER = r"(?!I\b)[A-ZÀ-ÞĀ-ŽА-ЯЁ](?:[\w’'-]*\w)?"
_TITLE = r"(?:Dr|Mr|Mrs|Ms|Prof|Professor|Herrn?|Frau|Señora?|Madame|Monsieur|Mme)\b\.?"
_NAMED = rf"(?P<name>(?:{_TITLE} )?{_PROPER}(?: {_PROPER})?)"
_POSSESSIVE = re.compile(r"['’]s$|['’]$")
_TITLED = re.compile(rf"^{_TITLE} ")
_HAN = r"\u4e00-\u9fff"
_WHOLE = re.compile(rf"(?:{_TITLE} )?{_PROPER}(?: {_PROPER})*|[{_HAN}]{{2,4}}")
_FEW = r"(?:[a-zß-öø-ÿ][\w-]* ){0,2}?"  # "my little sister", "my new boss"
NAME_MAX = 255
USER = ("User", "The user", "user")  # names for the user in their own memory


class NamedPerson(NamedTuple):
    name: str
    relationship: str  # relationship to the owner, in English
    owner: str = ""  # the name of the person to whom they are related; blank for the speaker


_WORDS = {
    language: dict(entry.split("=") for entry in words.split()) for language, words in table_lines("relationships")
}
_BY_WORD = {word.casefold(): relationship for words in _WORDS.values() for word, relationship in words.items()}


def _compiled(language: str, pattern: str) -> re.Pattern[str]:
    word = rf"(?P<word>{'|'.join(map(re.escape, sorted(_WORDS[language], key=len, reverse=True)))})"
    whose = rf"(?:\b(?:[Mm]y|[Oo]ur)|(?<![\w])(?P<owner>(?:The user|{_PROPER})))(?(owner)['’]s|)"
    parts = {
        "OWNER": f"{whose} {_FEW}{word}",
        "WORD": word,
        "FEW": _FEW,
        "NAMED": _NAMED,
        "PROPER": _PROPER,
        "HAN": _HAN,
    }
    return re.compile(filled(pattern, parts))


_PATTERNS = [_compiled(*line) for line in table_lines("named_people")]


@lru_cache(maxsize=2_000)  # a statement is parsed when it is added, and again with the person's other statements
def named_person(text: str) -> NamedPerson | None:
    """Return the first person in a sentence who is named with a relationship, or None.

    The sentence may start with its speaker.
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
    """Return whether a capitalized word is a name.

    At the beginning of a sentence, any word is capitalized, such as "This".
    """
    first = text.split(" ")[0]
    return first not in times.calendar_names() and not (begins and first.lower() in stop_words(DEFAULT))


def is_proper_name(text: str) -> bool:
    """Return whether the whole text is a name, such as "Anna Berg", but not "the trip" or "I"."""
    return _WHOLE.fullmatch(text) is not None and _is_name(text, begins=True)


def short_name(name: str) -> str:
    """Return the name without its title, otherwise its first word. Blank if there is no shorter form."""
    if title := _TITLED.match(name):
        return name[title.end() :]
    first, _, last = name.partition(" ")
    return first if last else ""
