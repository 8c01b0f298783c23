"""Whether an English sentence is a whole statement, which can be understood and believed by itself.

What is not is no fact, however much it says where it was said: a part of a sentence, what leans on the sentence before
or lacks a noun ("for two"), what is only supposed, what somebody else is quoted with, and what holds for a moment only
("I'm at 300 degrees"). All of it is told by its grammar, from words of closed classes.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from moments_app.engines.extractive import verbs
from moments_app.engines.extractive.language import ENGLISH, words
from moments_app.engines.extractive.phrases import subjects
from moments_app.engines.extractive.tables import any_of, word_set
from moments_app.engines.extractive.voice import with_subject

_NUMBERS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_PARTS = re.compile(r"\s*[,;:]\s+|\s+[-–—]+\s+|[-–—]{2,}")
_SUBORDINATE = frozenset("when whenever while if unless until till because although though where".split())
# Words that stand for several, so that a verb goes with them as with "we".
_SEVERAL = frozenset("i we you they who people children men women folks both all some most many others".split())
# Words that begin a noun with what belongs to it; all other function words begin something else.
_OF_NOUNS = frozenset(
    "i me my mine we us our ours you your yours he him his she her hers it its they them their theirs this that these "
    "those the a an no yes oh whatever please hi hello hey okay ok".split()
)
_BEFORE_NOUNS = frozenset(
    "a an the this each every my our your his her its their no twenty thirty forty fifty "
    f"{_NUMBERS.replace('|', ' ')}".split()
)
_LEANING = re.compile(
    r"^(?:then|otherwise|instead|so|therefore|(?:that|this|either) way|in (?:that|any|this) case|neither|nor|both|such"
    r"|(?:before|after) that)\b"
    r"|\bthe (?:first|second|third|last|next|other|others|rest|former|latter|(?:first|last|next|other) one)"
    r"(?= (?:is|are|was|were|has|have|had|will|comes?|goes|went|came)\b|[.,;!]|$)",
    re.IGNORECASE,
)
# A number or quantity whose noun is missing. After "at" it is a time, after "is" an age or a price.
_NOT_LACKING = (
    r"(?<!\bat )(?<!\bby )(?<!\bto )(?<!\bis )(?<!turned )(?<!until )(?<!till )(?<!before )(?<!after )(?<!around )"
    r"(?<!aged )(?<!past )(?<!, )(?<!this )(?<!that )(?<!each )(?<!no )(?<!\bor )(?<!\band )"
)
_LACKING = re.compile(
    rf"{_NOT_LACKING}\b(?:{_NUMBERS})(?=[.,;!]|$)"
    r"|\b(?:some|several|many|few|(?<!one )another|none)"
    r"(?= (?:to|is|are|was|were|do|don't|does|doesn't|have|has)\b|[.,;!]|$)"
    r"|\b(?:have|has|had|got|need|needs|gave|give) (?:so |too |as )(?:much|many)(?= (?:and|but)\b|[.,;!]|$)"
    r"|\b(?:am|is|are|was|were|be|been|i'm|we're) one(?= (?:'?cause|because|since|and|but|too|now)\b|[.,;!]|$)",
    re.IGNORECASE,
)
_LISTED = re.compile(r"(?!(?:and|or|but|i|we|he|she|it|they)\b)[\w'-]+(?: [\w'-]+)? and ", re.IGNORECASE)
_CONTRACTIONS = ("s", "m", "re", "ve", "ll", "d")
_SUPPOSED = re.compile(r"^(?:if|unless|suppose|supposing|imagine|maybe|perhaps|what if)\b", re.IGNORECASE)
_MIGHT = re.compile(
    r"^(?P<subject>(?:[\w'-]+ ){0,3}?[\w-]+)(?:'d| would| could| might| may| should)"
    r"(?: \w+ly| always| never| also)? (?P<next>[\w']+)"
)
_WISHED = frozenset(("love", "like", "prefer", "rather"))
_REPORTED = re.compile(
    r"^(?!I\b|We\b)[^,]{1,60}?\b(?:says|said|thinks|thought|insists|insisted|claims|claimed|writes|wrote|reckons"
    r"|tells me|told me)\b(?!-| (?:yes|no|sorry|hi|hello|goodbye|thanks)\b)",
    re.IGNORECASE,
)
_STANDS_FOR = re.compile(r"\b(?:he|him|his|she|her|hers|they|them|it)\b", re.IGNORECASE)
_AM = r"\b(?:I'm|I am|we're|we are)(?: (?:now|just|already|still|currently|almost|actually))*"
_AT_ONCE = r"(?:going to|gonna|about to|\w+ing)\b[^.;]*\b(?:right now|at the moment|just now|as we speak)\b"
# What is so while it is said: where something stands, what is done at once, where one is or is on the way to.
_PASSING = re.compile(
    rf"{_AM} (?:(?:at|up to|down to|past) (?:\w+ )?\d|{_AT_ONCE}|(?:going to|gonna|about to)\b[^.;]*\bnow\b"
    r"|off to\b|on (?:my|our|the) way\b|(?:sitting|standing|lying|waiting|heading|leaving|arriving)\b)"
    r"|\bI was (?:\w+ )?just \w+ing\b",
    re.IGNORECASE,
)
_DISLOCATED = re.compile(r"^(?:otherwise )?((?:my|our) [^,]{2,40}), (?:he|she|they|it) (?=[a-z])", re.IGNORECASE)
_ASKED = re.compile(r", (?:please )?(?P<verb>[a-z]+) (?:me|us)\b[^,]*$")
_NAMED = re.compile(rf"^([A-Z][\w'-]+), ((?:my|our) (?:\w+ )?(?:{any_of('kin', 'pets')}))(?=\W*$)")


def completed(text: str) -> str:
    """Return a sentence with the verb that it leaves out, without a subject that it has twice, or what it asks for."""
    if (asked := _ASKED.search(text)) and verbs.is_base(asked["verb"]):
        text = text[: asked.start()]
    if (twice := _DISLOCATED.match(text)) and not _has_verb(twice[1]):
        text = f"{twice[1][:1].upper()}{twice[1][1:]} {text[twice.end() :]}"
    return _NAMED.sub(lambda found: f"{found[2][:1].upper()}{found[2][1:]} is called {found[1]}", text)


def is_whole(text: str) -> bool:
    """Tell whether a sentence says something that is to be believed, and that is understood by itself.

    Args:
        text: as it was said, in English, without what only passes the time.
    """
    if _LEANING.search(text) or _LACKING.search(text) or _REPORTED.match(text) or _is_supposed(text):
        return False
    return _is_sentence(with_subject(text)) and not _stands_for_nothing(text) and not _PASSING.search(text)


def _is_supposed(text: str) -> bool:
    """Tell whether something might be so, or would; what one would love to is a wish, and holds."""
    if _SUPPOSED.match(text):
        return True
    found = _MIGHT.match(text)
    if found is None or any(map(verbs.is_finite, words(found["subject"]))):
        return False
    return not _is_real(found["next"].lower())


def _is_real(word: str) -> bool:
    """Tell whether "'d" before a word stands for "had", or it says what somebody would love."""
    return word in _WISHED or (verbs.is_participle(word) and not verbs.is_base(word))


def _is_sentence(text: str) -> bool:
    """Tell whether a verb goes with the first noun, after what may introduce it."""
    before, _mark, after = text.partition(": ")
    if after and not subjects(before, ENGLISH) and not (_has_verb(before) and _has_verb(after)):
        return False
    head, *rest = _PARTS.split(text)
    while rest and not _has_verb(head) and _introduces(head):
        head, *rest = rest
    return _has_verb(head) or any(_begins_with_verb(part) or _ends_list(part) for part in rest)


def _has_verb(part: str) -> bool:
    """Tell whether a part has a verb behind its subject, or what can be nothing else after "I" or "we"."""
    said = _main(words(part))
    if said[:1] in (["i"], ["we"]) and len(said) > 1:
        return True
    if _is_contracted(said[:1]) or any(_is_verb(word, before) for before, word in pairwise(said)):
        return True
    if "and" in said and any(_is_base_verb(word, before) for before, word in pairwise(said)):
        return True
    return any(_may_be_verb(*around) for around in zip(["", *said], said, said[1:-1], strict=False))


def _main(said: Sequence[str]) -> Sequence[str]:
    """Return the words before a clause that depends on them."""
    end = next((place for place, word in enumerate(said) if place and word in _SUBORDINATE), len(said))
    return said[:end]


def _may_be_verb(earlier: str, before: str, word: str) -> bool:
    """Tell whether an unknown word may be a verb: "an element lasts for years", "the pots cool in"."""
    if earlier[:1].isdigit() or _makes_noun(before) or before in word_set("function words") or verbs.is_gerund(before):
        return False
    is_third = word.endswith("s") and not word.endswith("ss") and word not in _introducing()
    return is_third or (before.endswith("s") and word in word_set("adjectives"))


def _is_contracted(said: Sequence[str]) -> bool:
    """Tell whether a word has its verb in it: "it's", "there're"."""
    return bool(said) and said[0].partition("'")[2] in _CONTRACTIONS


def _is_verb(word: str, before: str) -> bool:
    """Tell whether a word is a verb, after the word before it."""
    bare = word.removesuffix("n't")
    if _is_contracted([word]) or verbs.is_past(bare) or bare in verbs.AUXILIARIES:
        return True
    if before.endswith("ly") or before in word_set("adverbs"):
        return bare not in _introducing() and bare.isalpha() and not bare.endswith(("ly", "ing"))
    if verbs.is_third(bare):
        return not _makes_noun(before)
    return _is_base_verb(bare, before) and (before in _SEVERAL or before.endswith("s"))


def _is_base_verb(word: str, before: str) -> bool:
    """Tell whether a word is a verb as it goes with several, if they are what stands before it."""
    return verbs.is_base(word) and not _makes_noun(before) and before != "to"


def _makes_noun(before: str) -> bool:
    """Tell whether a word of two classes is a noun after this one: "two offers"."""
    return before[:1].isdigit() or before in _BEFORE_NOUNS or before in word_set("adjectives")


def _begins_with_verb(part: str) -> bool:
    """Tell whether a part goes on after an apposition: "my daughter, Mia, is six"."""
    said = [word for word in words(part) if word not in word_set("adverbs")]
    return bool(said) and verbs.is_finite(said[0])


def _ends_list(part: str) -> bool:
    """Tell whether a part is the last of several subjects, with their verb: "my friends, family and mentors are"."""
    return bool(_LISTED.match(part)) and _has_verb(part)


def _introduces(part: str) -> bool:
    """Tell whether a part without a verb may stand before a sentence: "in May", "growing up", "best of all"."""
    said = words(part)
    if not said or said[0] in word_set("function words") - _OF_NOUNS or verbs.is_gerund(said[0]):
        return True
    if not _SUBORDINATE.isdisjoint(said[1:2]):  # "even when …"
        return True
    return all(word in _introducing() or word.endswith("ly") for word in said)


def _introducing() -> frozenset[str]:
    return word_set("function words", "adverbs", "adjectives", "empty nouns", "quantities")


def _stands_for_nothing(text: str) -> bool:
    """Tell whether it is about "him" or "it", and says nothing before that this could be."""
    found = _STANDS_FOR.search(text)
    return found is not None and not subjects(text[: found.start()], ENGLISH)
