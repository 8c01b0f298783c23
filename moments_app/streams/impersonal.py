"""Whether a text may reach others without anybody looking at it, as far as rules can tell.

What they can't tell is refused. A lesson, which every answer of an agent begins with, may say nothing but how answers
look: all its words are in a list of such words (`answer_words.txt`). Anything else may state how things are, in plain
English: no name, number, place, sign or address, nothing of what is nobody's business, no order to its reader, and
nothing that is known of one of those who said it, unless all of them said it.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from moments_app.engines.english import DAYS, MONTHS, SPOKEN
from moments_app.turns.words import plain_words
from sessions_app.lexemes import english_stem, likely_languages, stop_words

WORDS = (4, 30)  # of a wording: at least, at most
KNOWN_LETTERS = 3  # a word shorter than this tells nothing of anybody

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_PLAIN = re.compile(r"[A-Za-z ,.;'’-]+")
_SENTENCE_START = re.compile(r"(?:^|[.;:!?]['’\")]*\s+)([A-Za-z'’-]+)", re.M)
_CAPITAL = re.compile(r"[^\W\d_]*[A-Z]")
_ALSO_VERBS = {"march", "may"}
_NUMBER = re.compile(
    rf"\d|\b(?:{'|'.join(SPOKEN[2:])}|\w+teen|\w+ty-?(?:{'|'.join(SPOKEN[1:10])})|twenty|thirty|forty|fifty|sixty|"
    rf"seventy|eighty|ninety|hundreds?|thousands?|millions?|dozens?|{'|'.join({*MONTHS, *DAYS} - _ALSO_VERBS)})\b",
    re.I,
)
_LEADS_AWAY = re.compile(
    r"https?|www\b|://|\w\.\w|[@\\/<>{}\[\]`|$#=*_~^]|"
    r"\b(?:links?|urls?|websites?|web ?pages?|web ?sites?|address|domain|click|visit|e-?mail|phone|call|text message|"
    r"download|upload|install|execute|command|shell|script|run|sudo|curl|wget|tokens?|passwords?|passphrase|secrets?|"
    r"credentials?|api keys?|login|buy|order|purchase|pay|payment|invest|donate|subscribe|sign up|coupon|discount|"
    r"promo\w*|advert\w*|sponsor\w*|recommend\w*|endorse\w*|send|forward|post|share|publish|leak|ignore|disregard|"
    r"override|bypass|forget|pretend|jailbreak|system prompt|instructions?|attachment|qr)\b",
    re.I,
)
_PERSON = re.compile(
    r"\b(?:I|I['’]\w+|me|my|mine|myself|we|we['’]\w+|us|our|ours|he|him|his|she|hers?|they|them|their|theirs|user|users|"
    r"person|patients?|customers?|clients?|somebody|someone|man|woman|boy|girl|wife|husband|partner|spouse|girlfriend|"
    r"boyfriend|mother|father|mom|mum|dad|parents?|son|daughter|child|children|kids?|brother|sister|uncle|aunt|cousin|"
    r"grand\w+|friends?|neighbou?rs?|colleagues?|boss|name|named|called)\b",
    re.I,
)
_STATEMENT = re.compile(r"\b(?:I|I['’]\w+|my|mine|myself|we|we['’]\w+|our|ours|he|him|his|she|hers?)\b", re.I)
_SENSITIVE = re.compile(
    r"\b(?:health|medic|doctor|nurse|clinic|hospital|ward|surger|therap|symptom|diagnos|disease|illness|sick|ill\b|pain|ache|"
    r"injur|wound|virus|infect|hiv|aids|std|cancer|tumou?r|diabet|insulin|asthma|allerg|epilep|stroke|heart|blood|cholesterol|"
    r"pregnan|abort|miscarr|fertil|menstru|depress|anxi|panic|bipolar|schizo|autis|adhd|ptsd|trauma|suicid|self-harm|mental|"
    r"psych|addict|alcohol|drunk|sober|drug|cocaine|heroin|opioid|cannabis|smok|weight|obes|anorex|bulimi|diet|disab|wheelchair|"
    r"deaf|blind|dement|alzheim|pill|dose|dosage|prescri|vaccin|covid|"
    r"money|salar|income|wage|debt|loan|mortgage|bankrupt|bank|credit|tax|rent|lawsuit|court|police|arrest|prison|jail|crim|"
    r"convict|victim|abuse|assault|rape|murder|weapon|gun|religio|church|mosque|synagogue|christian|muslim|jew|hindu|buddh|"
    r"atheis|pray|polit|vote|election|party|democrat|republican|race|racis|ethnic|immigra|refugee|sex|gay|lesbian|bisexual|"
    r"transgender|queer|divorc|marri|wedding|affair|funeral|died|dead|death|grief|birth|"
    r"street|avenue|road|room|apartment|house number|zip|postcode|city|town|village|country|school|university|"
    r"employer)\w*",
    re.I,
)
_ORDERS = re.compile(
    r"\b(?:always|never|must|should|shall|have to|has to|need to|from now on|in future|next time|please|make sure|"
    r"remember|don['’]t|do not|stop|avoid|every|your|you|answers?|repl(?:y|ies)|respon\w+|assistants?|say|tell|"
    r"mention\w*|begin|start with|end with|first line|prompts?|messages?|conversations?)\b",
    re.I,
)


@dataclass(frozen=True)
class Known:
    """The words that are known of one person.

    Args:
        names: that stand for the person or for others; nobody else may read one, whoever said it.
        words: of the profile and the like: others may read one if all said it.
    """

    names: frozenset[str]
    words: frozenset[str]


def stems_of(text: str) -> frozenset[str]:
    """Return the stems of the words that say something."""
    words = (word.replace("’", "'").removesuffix("'s") for word in _WORD.findall(text.casefold()))
    return frozenset(english_stem(word) for word in words if word not in stop_words("en"))


def names_in(text: str) -> frozenset[str]:
    """Return the stems of the words that are written like names."""
    inner = _SENTENCE_START.sub(" ", text)
    words = (word for word in _WORD.findall(inner) if _CAPITAL.match(word) and word.casefold() not in ("i", "i'm"))
    return frozenset(english_stem(word.casefold()) for word in words)


# --- what was said ---


def _speaks_of_people(said: str, is_lesson: bool) -> bool:
    return bool((_STATEMENT if is_lesson else _PERSON).search(said))


_OF_SOURCES: dict[str, Callable[[str, bool], object]] = {
    "it is not in English": lambda said, _: any(letter.isalpha() and not letter.isascii() for letter in said),
    "it has a link, an address or a command": lambda said, _: _LEADS_AWAY.search(said),
    "it is about whoever said it, or another": _speaks_of_people,
    "it is nobody's business": lambda said, _: _SENSITIVE.search(said),
    "it has a number": lambda said, _: _NUMBER.search(said),
    "it has a name": lambda said, _: names_in(said),
}
ABOUT_SOMEBODY = "it names whom it is about"  # as the application or an operator said of it
SOURCE_PROBLEMS = (*_OF_SOURCES, ABOUT_SOMEBODY)


def problem_of_source(said: str, *, is_lesson: bool) -> str:
    """Return why something that one person said counts for nothing here, of `SOURCE_PROBLEMS`; blank when it counts.

    Args:
        said: by one person.
        is_lesson: as of `problem_of_wording`; a lesson may name the user whom the assistant answers.
    """
    return next((told for told, check in _OF_SOURCES.items() if check(said, is_lesson)), "")


# --- what others would see ---


def problem_of_wording(wording: str, *, is_lesson: bool, known: Collection[Known], said: Collection[str]) -> str:
    """Return why a wording is not released by a rule; blank when nothing speaks against it.

    Args:
        wording: that others would see.
        is_lesson: it would stand at the beginning of contexts, as something to be done.
        known: of each person it is from.
        said: by each of them.
    """
    checks: dict[str, Callable[[], object]] = {
        "it is too short or too long": lambda: not WORDS[0] <= len(wording.split()) <= WORDS[1],
        "it has more in it than plain words": lambda: not _PLAIN.fullmatch(wording),
        "it has a link, an address or a command": lambda: _LEADS_AWAY.search(wording),
        "it has a number": lambda: _NUMBER.search(wording),
        "it speaks of a person": lambda: _PERSON.search(wording),
        "it is about what is nobody's business": lambda: _SENSITIVE.search(wording),
        "it has a name": lambda: names_in(wording) or _begins_with_a_name(wording, said),
        "it has a word that is known of one person": lambda: _is_known(wording, known, said),
    }
    of_lessons: dict[str, Callable[[], object]] = {
        "it says more than how answers look": lambda: stems_of(wording) - answer_stems()
    }
    of_others: dict[str, Callable[[], object]] = {
        "it is not in English": lambda: likely_languages(wording) != ("en",),
        "it tells its reader what to do": lambda: _ORDERS.search(wording),
    }
    checks |= of_lessons if is_lesson else of_others
    return next((told for told, check in checks.items() if check()), "")


def _begins_with_a_name(wording: str, said: Collection[str]) -> bool:
    """Tell whether a sentence begins with a word that nobody wrote in lower case."""
    seen = {word for text in said for word in plain_words(" ".join(re.findall(r"\b[a-z][\w'’-]*", text))).split()}
    small = {english_stem(word) for word in seen} | answer_stems()
    firsts = _SENTENCE_START.findall(wording)
    return any(first.casefold() not in stop_words("en") and not stems_of(first) <= small for first in firsts)


def _is_known(wording: str, known: Collection[Known], said: Collection[str]) -> bool:
    """Tell whether a word is known of one person, and isn't what all of them said."""
    stems = {stem for stem in stems_of(wording) if len(stem) >= KNOWN_LETTERS}
    common = frozenset.intersection(*map(stems_of, said)) if said else frozenset()
    of_one = {word for one in known for word in one.words} - common - answer_stems()
    return not stems.isdisjoint(of_one | {name for one in known for name in one.names} - answer_stems())


@cache
def answer_stems() -> frozenset[str]:
    """Return the stems of the words that say how answers look, and nothing else."""
    return stems_of((Path(__file__).parent / "answer_words.txt").read_text(encoding="utf-8"))
