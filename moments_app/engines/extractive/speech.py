"""What somebody says, without what only passes the time: asides, greetings, names called, interjections.

What is left of a sentence may still be a reaction to what the other said ("That sounds great!"), which is told from
statements by its beginning. The words are those of `tables/english.txt`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from moments_app.engines.extractive.tables import any_of, word_set

_ASIDE = re.compile(r"\[[^\[\]]{1,300}\]|\((?:laughs?|sighs?|smiles?|grins?)\)|:\)|;\)|:D", re.IGNORECASE)
_PICTURES = re.compile("[\u2190-\u2bff\U0001f000-\U0001faff\ufe0f\u200d]+")  # arrows, symbols, emoji
_PICTURES_BETWEEN = re.compile(rf"(?<=\w)\s*{_PICTURES.pattern}\s*(?=[A-Z])")  # two sentences
_REACTION = re.compile(rf"(?:{any_of('reactions')})(?![\w'])", re.IGNORECASE)
_CONJUNCTION = re.compile(
    r"^(?:(?:and|but|plus|also|now(?= (?:I|we|my)\b)|so(?= (?:I|we|my|our|the|it|they|he|she|now)\b))"
    r"|(?:well|oh|anyways?|now|then),) (?=\S)",
    re.IGNORECASE,
)
# Where a sentence can be cut: at a dash, a semicolon, and where a clause with a subject of its own begins.
_PARTS = re.compile(
    r"(\s+[-–—]+\s+|(?<=\w)[-–—]{2,}\s*|;\s+"
    r"|,? (?=(?:and|but|so|because|'cause|cause) (?:it|that|this|they|there|I'm)\b)"
    r"|, (?=(?:which|it|it's|that's|and)\b)|\. )",
    re.IGNORECASE,
)
# Where another statement of the speaker's begins.
_CLAUSE = re.compile(
    r"(?:,? (?:and|but|so|plus)|[;,]|\s+[-–—]+|(?<=\w)[-–—]{2,}) "
    r"(?=(?:I|I'm|I've|we|we're|we've|my)\b(?! (?:guess|think|mean|know|believe|hope)\b))"
)
_CLAUSE_WORDS = 4
_LEANING = re.compile(r"\b(?:do|does|did|is|are|was|were|can|will|would|have|has|had|too|either)\W*$", re.IGNORECASE)
# What leads up to news: "since we last talked, …", "I wanted to let you know that …".
_SINCE = re.compile(
    r"(?:since (?:(?:we|I) last \w+|we (?:talked|spoke|chatted|met)(?: last)?|(?:our|my|the) last \w+)(?:[\s,–—-]+|$)"
    r"|(?:I )?(?:just )?(?:wanted|want) to (?:let you know|tell you)(?: that)? (?=I\b|my\b|we\b)"
    r"|(?:I'm )?(?:so |really )?excited to (?:let you know|tell you)(?: that)? (?=I\b|my\b|we\b))",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"(?:if|when|whenever|after|before|since|because|while|although|though|as|until|once|the more)\b", re.IGNORECASE
)
_JUDGEMENT = re.compile(
    r"(?:and |but |so |'?cause |because )?(?:it|that|this|they)(?:'s|'re| is| are| was| were| has| have)?(?: been)?"
    rf"(?: (?:a|an|such|{any_of('adverbs')}))* (?:{any_of('adjectives')})\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(rf"\b(?:{any_of('negations')})\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_GREETED = r"(?:[Hh]i|[Hh]ey|[Hh]ello|[Dd]ear) [A-Z][\w'-]+(?=[,!.])"  # by a name that nobody is known to speak under
_OPENERS = 3  # interjections before the last of a row: with any number, rows that match in two ways would take for ever
_NICKNAME = 3  # letters of a name that are a way to call somebody


def without_asides(text: str) -> str:
    """Return a text without descriptions of what was shared or done, and without pictures."""
    return _PICTURES.sub(" ", _PICTURES_BETWEEN.sub(". ", _ASIDE.sub(" ", text))).replace("’", "'")


def without_openers(sentence: str, called: frozenset[str]) -> str:
    """Return a sentence without interjections before it, and without the names of who is spoken to.

    Args:
        sentence: in English.
        called: names that the speakers call each other.
    """
    opener, closer = _patterns(called)
    left = closer.sub(r"\1", sentence.strip())
    while left and (match := opener.match(left)):
        left = left[match.end() :]
    left = _SINCE.sub("", left, count=1) if _SINCE.match(left) else left
    while match := _CONJUNCTION.match(left):
        left = left[match.end() :]
    return left[:1].upper() + left[1:]


def clauses(sentence: str) -> list[str]:
    """Return the parts of a sentence that have "I" or "my" as their subject, and the one before them.

    A sentence that begins with a condition, or quotes, is left whole.
    """
    if _CONDITION.match(sentence) or '"' in sentence or "“" in sentence:
        return [sentence]
    found = _CLAUSE.split(sentence)
    stands = all(len(part.split()) >= _CLAUSE_WORDS and not _LEANING.search(part) for part in found)
    return found if stands else [sentence]


def without_idle_parts(sentence: str) -> str:
    """Return a sentence without the parts at its ends that only judge: ", which is pretty exciting"."""
    parts = _PARTS.split(sentence)  # parts, with what joins them between
    while len(parts) > 1 and is_idle(parts[-1]):
        del parts[-2:]
    while len(parts) > 1 and is_idle(parts[0]):
        del parts[:2]
    left = _CONJUNCTION.sub("", "".join(parts))
    return left[:1].upper() + left[1:]


def is_idle(part: str) -> bool:
    """Tell whether a part of a sentence names and denies nothing: it has no word but what judges."""
    if _JUDGEMENT.match(part):
        return True
    if _DENIAL.search(part):
        return False
    said = [word.removesuffix("'s") for word in _WORD.findall(part)]
    idle = word_set(
        "function words", "adverbs", "chat words", "adjectives", "interjections", "empty nouns", "idle words"
    )
    return all(word.lower() in idle for word in said) and not any(map(str.isdigit, part))


def is_reaction(sentence: str) -> bool:
    """Tell whether a sentence only answers to what the other said, or passes the time."""
    return bool(_REACTION.match(sentence))


def nicknames(names: Iterable[str]) -> frozenset[str]:
    """Return names and how they are cut short: Mel for Melanie."""
    firsts = {name.split()[0] for name in names}
    return frozenset(first[:length] for first in firsts for length in range(_NICKNAME, len(first) + 1)) | frozenset(
        firsts
    )


@lru_cache(maxsize=64)
def _patterns(called: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what matches an opener, and what matches a name called at the end."""
    names = "|".join(sorted(map(re.escape, called), key=len, reverse=True)) or r"(?!)"
    word = rf"(?:{_GREETED}|(?i:{any_of('interjections')})|{names})"
    opener = re.compile(rf"(?:{word}[ ,]+){{0,{_OPENERS}}}{word}(?:\s*[,.!?…:;]+|\s*[-–—]+(?=\s)|\s*$)\s*")
    return opener, re.compile(rf",?\s+(?:{names})([.!?…]*)$")
