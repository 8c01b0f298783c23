"""Recognize text without content, such as greetings and reactions, and sentences that need context.

A sentence needs context if it matches a pattern of `tables/leaning.txt` or has a pronoun without an antecedent.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from moments_app.engines.tables import any_of, any_pattern

_REACTION = re.compile(rf"(?:{any_of('reactions')})(?![\w'])", re.IGNORECASE)
_GREETED = r"(?:[Hh]i|[Hh]ey|[Hh]ello|[Dd]ear) [A-Z][\w'-]+(?=[,!.])"  # with a name, even an unknown one
_OPENERS = 3  # maximum interjections before the last one; the limit prevents exponential time
_NICKNAME = 3  # minimum letters of a short form of a name
_PRONOUN = re.compile(r"\b(?:he|him|his|she|her|hers|they|them|it)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"(?i:\b(?:my|our|an?|the|two|three|some|his|her|their|\d+) [^\W\d_])|(?<=[a-z,] )[A-Z][a-z]"
    r"|[,;] | (?:and|but|because|when) "
    r"|^[A-Z][a-z]{2,} (?!a|the)"
)
_PART = re.compile(r"^[^\w\"“¿¡(]|[:(,;–—-]$")


def without_openers(sentence: str, called: frozenset[str]) -> str:
    """Return a sentence without leading interjections and names of the addressed person.

    Args:
        sentence: in English.
        called: names that the speakers call each other.
    """
    opener, closer = _patterns(called)
    left = closer.sub(r"\1", sentence.strip())
    while left and (match := opener.match(left)):
        left = left[match.end() :]
    return left[:1].upper() + left[1:]


def is_reaction(sentence: str) -> bool:
    """Return whether a sentence is only a reaction or small talk."""
    return bool(_REACTION.match(sentence))


def nicknames(names: Iterable[str]) -> frozenset[str]:
    """Return names and their short forms: Mel for Melanie."""
    firsts = {name.split()[0] for name in names}
    return frozenset(first[:length] for first in firsts for length in range(_NICKNAME, len(first) + 1)) | firsts


@lru_cache(maxsize=64)
def _patterns(called: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a pattern for openers, and a pattern for a name at the end."""
    names = "|".join(sorted(map(re.escape, called), key=len, reverse=True)) or r"(?!)"
    word = rf"(?:{_GREETED}|(?i:{any_of('openers')})|{names})"
    opener = re.compile(rf"(?:{word}[ ,]+){{0,{_OPENERS}}}{word}(?:\s*[,.!?…:;]+|\s*[-–—]+(?=\s)|\s*$)\s*")
    return opener, re.compile(rf",?\s+(?:{names})([.!?…]*)$")


def leans(text: str, language: str) -> bool:
    """Return whether a sentence can't be understood without the previous one.

    Args:
        text: a sentence without leading interjections.
        language: the language of its turn.
    """
    if any_pattern("leaning", language).search(text) or _PART.search(text) or text.count('"') % 2:
        return True
    if language != "en":
        return False
    pronoun = _PRONOUN.search(text)
    return pronoun is not None and not _NAMED.search(text[: pronoun.start()])
