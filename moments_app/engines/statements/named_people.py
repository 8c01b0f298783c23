"""Find a person named with a relationship: "my sister Anna", "Dr. Weiss is my dentist", "Nora's son Tim".

`tables/named_people.txt` has a few short patterns per language. Sentences that match no pattern are ignored.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from moments_app.engines import times
from moments_app.engines.statements import SPEAKER
from moments_app.engines.words import fill_pattern, table_lines
from sessions_app.lexemes import DEFAULT, stop_words

_PROPER = r"(?!I\b)[A-ZÀ-ÞĀ-ŽА-ЯЁ](?:[\w’'-]*\w)?"
_TITLE = r"(?:Dr|Mr|Mrs|Ms|Prof|Professor|Herrn?|Frau|Señora?|Madame|Monsieur|Mme)\b\.?"
_NAMED = rf"(?P<name>(?:{_TITLE} )?{_PROPER}(?: {_PROPER})?)"
_POSSESSIVE = re.compile(r"['’]s$|['’]$")
_TITLED = re.compile(rf"^{_TITLE} ")
_HAN = r"\u4e00-\u9fff"
_WHOLE = re.compile(rf"(?:{_TITLE} )?{_PROPER}(?: {_PROPER})*|[{_HAN}]{{2,4}}")
FEW_WORDS = r"(?:[a-zß-öø-ÿ][\w-]* ){0,2}?"  # "my little sister", "my new boss"
NAME_MAX = 255
USER = ("User", "The user", "user")  # names for the user in their own memory


class NamedPerson(NamedTuple):
    name: str
    relationship: str  # relationship to the owner, in English
    owner: str = ""  # the name of the other person, such as "Nora" in "Nora's son Tim"; blank for "my son"


# Relationships to the speaker in English, by language and word.
RELATIONSHIPS = {
    language: dict(entry.split("=") for entry in words.split()) for language, words in table_lines("relationships")
}
RELATIONSHIP_OF = {
    word.casefold(): relationship for words in RELATIONSHIPS.values() for word, relationship in words.items()
}


def any_relationship(language: str) -> str:
    """Return a pattern for the words for relationships in a language."""
    return "|".join(map(re.escape, sorted(RELATIONSHIPS[language], key=len, reverse=True)))


def load() -> None:
    """Compile the patterns now instead of on first use."""
    _patterns()
    _is_named()


def _compiled(language: str, pattern: str) -> re.Pattern[str]:
    word = f"(?P<word>{any_relationship(language)})"
    whose = rf"(?:\b(?:[Mm]y|[Oo]ur)|(?<![\w])(?P<owner>(?:The user|{_PROPER})))(?(owner)['’]s|)"
    parts = {
        "OWNER": f"{whose} {FEW_WORDS}{word}",
        "WORD": word,
        "FEW": FEW_WORDS,
        "NAMED": _NAMED,
        "PROPER": _PROPER,
        "HAN": _HAN,
    }
    return re.compile(fill_pattern(pattern, parts))


@cache
def _patterns() -> list[re.Pattern[str]]:
    return [_compiled(*line) for line in table_lines("named_people")]


@cache
def _is_named() -> re.Pattern[str]:
    """Return a pattern that requires a known name: "My sister is German" has the form of "My sister is Anna"."""
    return _compiled("en", "<OWNER> (?:is|was) <NAMED>")


@lru_cache(maxsize=2_000)  # a statement is parsed when it is added, and again with the person's other statements
def named_people(text: str) -> tuple[NamedPerson, ...]:
    """Return the people named with a relationship in a sentence, which may start with its speaker's name."""
    return tuple(_matches(text, _patterns()))


def named_person(text: str) -> NamedPerson | None:
    return next(iter(named_people(text)), None)


def relationship_of(name: str, text: str, owners: Collection[str] | None = None) -> str:
    """Return the relationship that a sentence about a person states, or "".

    Args:
        owners: only relationships to people with these names count; None counts all relationships.
    """
    people = chain(named_people(text), _matches(text, [_is_named()]))
    related = (one for one in people if one.name == name and (owners is None or one.owner in owners))
    return next((one.relationship for one in related), "")


def _matches(text: str, patterns: Iterable[re.Pattern[str]]) -> Iterator[NamedPerson]:
    line = SPEAKER.match(text)
    said = text[line.end() :] if line else text
    for pattern in patterns:
        for found in pattern.finditer(said):
            name = _POSSESSIVE.sub("", found["name"])
            if _is_name(name, begins=found.start("name") == 0):
                owner = found.groupdict().get("owner") or ""
                yield NamedPerson(name[:NAME_MAX], RELATIONSHIP_OF[found["word"].casefold()], owner)


def _is_name(text: str, *, begins: bool) -> bool:
    """Return whether a capitalized word is a name.

    At the beginning of a sentence, any word is capitalized, such as "This".
    """
    first = text.split(" ")[0]
    return first not in times.calendar_names() and not (begins and first.lower() in stop_words(DEFAULT))


def is_proper_name(text: str) -> bool:
    """Return whether the whole text is a name, such as "Anna Berg", but not "the trip" or "I"."""
    return _WHOLE.fullmatch(text) is not None and _is_name(text, begins=True)


def with_first_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(called for name in names for called in (name, name.split(" ")[0]))


def short_name(name: str) -> str:
    """Return the name without its title. If it has no title, return its first word, or "" if that is the whole name."""
    if title := _TITLED.match(name):
        return name[title.end() :]
    first, _, last = name.partition(" ")
    return first if last else ""
