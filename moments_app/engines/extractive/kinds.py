"""What a sentence tells of its speaker: who they are, their people, their work, and so on, by words of the tables."""

import re

from moments_app.engines.extractive.tables import any_of, entries
from moments_app.engines.extractive.voice import FIRST_PERSON

WHO, PEOPLE, WORK, HEALTH, PLANS, LIKES = "who", "people", "work", "health", "plans", "likes"
KINDS = (WHO, PEOPLE, WORK, HEALTH, PLANS, LIKES)
# How much longer something is true and asked for than what merely happened.
DURABLE = {WHO: 1.0, PEOPLE: 0.8, HEALTH: 0.7, WORK: 0.5, LIKES: 0.5, PLANS: 0.4}
START = 32  # characters in which somebody who tells of themselves says so: "You sound like my mother" doesn't

_BEING = rf"\bI(?:'m| am| was)(?: (?:a bit|now|also|still|originally|currently|really))? (?:{any_of('being')})\b"
_SELF_NAMED = r"^(?:\w+,? )?I(?:'m| am) (?!(?:Not|OK|Ok|Fine|Good)\b)[A-Z][\w'-]+(?: [A-Z][\w'-]+)?(?=[,.!]|$| and I\b)"
_CALLED = r"\b(?:called|named|names? (?:is|are|was))\s+[A-Z]"
_EVEN = "really|also|just|always|so|truly|absolutely|still|totally"
LIKED = re.compile(
    rf"\b(?:I|we)(?:'ve|'d|'m| am| have)?(?: been)?(?: (?:{_EVEN}))* (?:{any_of('likes')})\b", re.IGNORECASE
)
PURSUED = re.compile(rf"\bI(?:'ve|'m| am| have)?(?: been)?(?: (?:{_EVEN}))* (?:{any_of('pursuits')})\b", re.IGNORECASE)
# "I started going to a gym" is no plan.
_NO_HABIT = r"(?!(?:(?<=started )|(?<=began )|(?<=been )|(?<=love )|(?<=like )|(?<=enjoy ))going)"
_HAVING = r"\b(?:my|our|have|has|had|got|adopted|a|another|two|three|four|new)(?: [\w'-]+){0,2}? "
_PATTERNS = {
    WHO: re.compile(rf"{_BEING}|{_SELF_NAMED}|(?i:\b(?:{any_of('who')})\b)"),
    PEOPLE: re.compile(
        rf"(?i:\b(?:my|our)(?: [\w'-]+){{0,2}}? (?:{any_of('kin')})\b)|(?i:{_HAVING}(?:{any_of('pets')})\b)|{_CALLED}"
    ),
    WORK: re.compile(rf"(?i:\b(?:{any_of('work')})\b)"),
    HEALTH: re.compile(rf"(?i:\b(?:{any_of('health')})\b)"),
    PLANS: re.compile(rf"(?i:(?:\b|(?=')){_NO_HABIT}(?:{any_of('plans')})\b)"),
    LIKES: re.compile(rf"(?i:{LIKED.pattern}|\bmy (?:favou?rite|hobby|hobbies|passion)\b)"),
}
_WORKING = re.compile(r"\b(?:work|worked|working|studied|study|studying|job) (?:as|at|for|in|on)\b", re.IGNORECASE)
_OF_ONESELF = re.compile(rf"^(?:{'|'.join(map(re.escape, entries('begun without a subject')))})\b", re.IGNORECASE)


# "Our kids are our future" says it of everybody's, "I want to shape our future" of the speaker.
_EVERYBODYS = re.compile(rf"\bour(?: [\w'-]+)? (?:{any_of('of everybody')})\b", re.IGNORECASE)
_OWN = re.compile(r"\b(?:I|me|my|mine|myself|we)\b(?!\.)", re.IGNORECASE)


def is_of_oneself(text: str) -> bool:
    """Tell whether a sentence, at its beginning, is about who says it."""
    return bool(FIRST_PERSON.search(text[:START]) or _OF_ONESELF.match(text)) and not is_of_everybody(text)


def is_of_everybody(text: str) -> bool:
    """Tell whether "our" in a sentence is everybody's, as in "our planet", and it tells of nobody."""
    return bool(_EVERYBODYS.search(text)) and not _OWN.search(text)


def kinds_of(text: str) -> tuple[str, ...]:
    """Return what a sentence tells of its speaker, what lasts longest first; blank if it isn't about them."""
    if not is_of_oneself(text) and not re.search(_CALLED, text):
        return ()
    found = [kind for kind in sorted(KINDS, key=lambda kind: -DURABLE[kind]) if _PATTERNS[kind].search(text)]
    # A nurse in a hospital tells of work, not of health.
    return tuple(sorted(found, key=lambda kind: kind != WORK) if _WORKING.search(text) else found)
