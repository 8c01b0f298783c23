"""Recognize sentences without content, sentences that need context, and sentences about their speaker.

Greetings and reactions have no content. A sentence needs context if it matches a pattern of `tables/leaning.txt` or has
a pronoun without an antecedent. Information about the speaker, such as identity, family or work, is recognized by words
in tables.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from moments_app.engines.extractive.language import ENGLISH, is_wide, words
from moments_app.engines.tables import any_of, any_pattern, english, filled, table_lines, table_words

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
INSTRUCTION, OTHER = "instruction", "other"  # an instruction how to answer; any lasting information in another language
START_CHARS = 48  # length of the start of a sentence that is searched for the first person

_FIRST_PERSON = re.compile(r"\b(?:I|me|[Mm]y|mine|myself|[Ww]e|us|[Oo]ur|ours)\b(?!\.)")
_OF_LISTENER = re.compile(r"you(?:r|rs|'re|'ve|'d|'ll)?\b", re.IGNORECASE)  # "You sound like my mother."
_CALLED = re.compile(r"\b(?:called|named|names? (?:is|are|was))\s+[A-Z]")
_PATTERNS = {(*head.split(" "),): re.compile(filled(pattern, english())) for head, pattern in table_lines("own_kinds")}
# Additional weights of lasting information. The longer it stays true and useful, the higher the weight.
DURABLE = {INSTRUCTION: 0.7, OTHER: 0.8} | {kind: float(worth) for kind, worth in _PATTERNS}
_FROM_NOW = r"next time|from now on|in future|in the future"
_ORDER = re.compile(
    rf"^(?:(?:please|{_FROM_NOW}|and|so|ok|okay),? )*(?:always|never|don't|do not|stop|avoid|make sure|remember to"
    rf"|be sure to|answer|reply|respond|explain|keep|use|write)\b.*|^please \w+.*\b(?:{_FROM_NOW})\b",
    re.IGNORECASE,
)
_ASKED = re.compile(rf"\b(?:please|{_FROM_NOW})\b", re.IGNORECASE)
# Words for the work of an assistant: "Don't use jargon" instructs one, but "Make sure yours stands out" is advice to a
# friend.
_ANSWERING = re.compile(
    r"\b(?:answers?|answering|repl(?:y|ies)|respon[ds]\w*|explain\w*|summari[sz]\w+|translat\w+|bullets?|sentences?"
    r"|paragraphs?|emojis?|markdown|code blocks?|jargon|metric|units|sources)\b",
    re.IGNORECASE,
)
# "Our planet is our future" says nothing about the speaker.
_EVERYBODYS = re.compile(
    r"\bour(?: \w+)? (?:earth|environment|future|generations?|humanity|planet|society|species|world)\b", re.IGNORECASE
)
_OWN = re.compile(r"\b(?:I|me|my|mine|myself|we)\b(?!\.)", re.IGNORECASE)


def without_openers(sentence: str, called: frozenset[str]) -> str:
    """Return an English sentence without leading interjections and the name of the person it is said to.

    Args:
        called: Names by which the speakers call each other.
    """
    opener, closer = _patterns(called)
    left = closer.sub(r"\1", sentence.strip())
    while left and (match := opener.match(left)):
        left = left[match.end() :]
    return left[:1].upper() + left[1:]


def is_reaction(sentence: str) -> bool:
    return bool(_REACTION.match(sentence))


def nicknames(names: Iterable[str]) -> frozenset[str]:
    """Return names and their short forms: Mel for Melanie."""
    firsts = {name.split()[0] for name in names}
    return frozenset(first[:length] for first in firsts for length in range(_NICKNAME, len(first) + 1)) | firsts


@lru_cache(maxsize=64)
def _patterns(called: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a pattern for interjections at the start, and a pattern for a name at the end."""
    names = "|".join(sorted(map(re.escape, called), key=len, reverse=True)) or r"(?!)"
    word = rf"(?:{_GREETED}|(?i:{any_of('openers')})|{names})"
    opener = re.compile(rf"(?:{word}[ ,]+){{0,{_OPENERS}}}{word}(?:\s*[,.!?…:;]+|\s*[-–—]+(?=\s)|\s*$)\s*")
    return opener, re.compile(rf",?\s+(?:{names})([.!?…]*)$")


def needs_context(text: str, language: str) -> bool:
    """Return whether a sentence, without its leading interjections, can't be understood without the previous one."""
    if any_pattern("leaning", language).search(text) or _PART.search(text) or text.count('"') % 2:
        return True
    if language != "en":
        return False
    pronoun = _PRONOUN.search(text)
    return pronoun is not None and not _NAMED.search(text[: pronoun.start()])


def is_about_speaker(text: str, language: str) -> bool:
    """Return whether the start of a sentence is about its speaker."""
    if language != ENGLISH:
        return not set(table_words("first_person", language)).isdisjoint(words(text))
    is_everybodys = _EVERYBODYS.search(text) and not _OWN.search(text)
    return bool(_FIRST_PERSON.search(text[:START_CHARS])) and not is_everybodys and not _OF_LISTENER.match(text)


def is_instruction(text: str) -> bool:
    """Return whether a sentence tells the assistant how to answer, unlike remarks ("Never saw that") and advice."""
    return bool(_ORDER.match(text)) and bool(_ANSWERING.search(text) or _ASKED.search(text))


def is_advice(text: str) -> bool:
    """Return whether a sentence is an instruction to a person, such as advice to a friend."""
    return bool(_ORDER.match(text)) and not is_instruction(text)


def kinds_of(text: str, language: str) -> tuple[str, ...]:
    """Return the kinds of lasting information that a sentence has about its speaker, most durable first."""
    if language != ENGLISH:
        return (OTHER,) if is_about_speaker(text, language) and _has_lasting_word(text, language) else ()
    if is_instruction(text):
        return (INSTRUCTION,)
    if not is_about_speaker(text, language) and not _CALLED.search(text):
        return ()
    return tuple(kind for (kind, _), pattern in _PATTERNS.items() if pattern.search(text))


def _has_lasting_word(text: str, language: str) -> bool:
    if is_wide(text):
        return any(word in text for word in table_words("lasting", language))
    return any(word.startswith(table_words("lasting", language)) for word in words(text))
