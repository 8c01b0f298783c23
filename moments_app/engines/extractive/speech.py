"""Recognize text without content: greetings, forms of address, interjections, reactions."""

import re
from collections.abc import Iterable
from functools import lru_cache

from moments_app.engines.tables import any_of

_REACTION = re.compile(rf"(?:{any_of('reactions')})(?![\w'])", re.IGNORECASE)
_GREETED = r"(?:[Hh]i|[Hh]ey|[Hh]ello|[Dd]ear) [A-Z][\w'-]+(?=[,!.])"  # with a name, even an unknown one
_OPENERS = 3  # maximum interjections before the last one; the limit prevents exponential time
_NICKNAME = 3  # minimum letters of a short form of a name


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
