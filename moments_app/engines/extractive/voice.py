"""What somebody says of themselves, told of them: "I adopted a puppy" becomes "Caroline adopted a puppy".

The first "I" or "we" becomes the name, and its verb goes with it; each later one becomes "they", which fits everybody.
Who is spoken to by name is named. Nothing else is changed: what can't be told is left as it was said.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from moments_app.engines.extractive import verbs
from moments_app.engines.extractive.tables import any_of, word_set

# What is quoted, as a whole; a word; space; a mark.
_PART = re.compile(r"\"[^\"]*\"|“[^”]*”|[^\W_]+(?:['-][^\W_]+)*|\s+|.", re.DOTALL)
_SHORT = {"gonna": "going to", "wanna": "want to", "gotta": "have to", "kinda": "kind of", "im": "I'm", "ive": "I've"}
_CONTRACTIONS = {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will"}
_AND_I = re.compile(
    r"^((?:my|our) (?:[\w'-]+ ){1,3}?)and (?:I|me)\b|^me and ((?:my|our) (?:[\w'-]+ ?){1,2}?)(?= \w+ed\b)", re.I
)
_OWNERS = {"my": "", "our": "", "mine": "s", "ours": "s"}
_SUBJECTS, _OBJECTS = ("i", "we"), ("me", "us")
_SELVES = {"yourself": "themselves", "myself": "themselves", "ourselves": "themselves"}
_JOINING = frozenset(("and", "or", "but", "then"))
_CLAUSE_STARTS = frozenset(", ; that if when because what how as since while but where why".split())
_BEFORE_VERB = word_set("adverbs") | {"both", "all", "last", "first", "no", "longer"}
# Where "we" are several who do something to or with each other, one name is not enough.
_SEVERAL = re.compile(
    r"\b(?:each other|one another|together|we (?:both|all|are a|met)|us (?:both|all))\b|\bwe're (?:a|all|both)\b", re.I
)
FIRST_PERSON = re.compile(r"\b(?:I|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself|[Ww]e|[Oo]ur|[Oo]urs|[Uu]s|[Oo]urselves)\b(?!\.)")
_BEGUN = re.compile(rf"^(?:{any_of('begun without a subject')})\b(?!,)", re.IGNORECASE)
_GERUND_SUBJECT = re.compile(r"^\w+ing(?: \w+){0,4} (?:is|was|are|helps?|makes?|gives?|has)\b|^\w+ing's\b")


@dataclass(frozen=True)
class Speaker:
    """Who says something.

    Args:
        name: by which they are told of.
        is_named: it is a name, not a role.
    """

    name: str
    is_named: bool

    @property
    def owner(self) -> str:
        """Their name before what is theirs."""
        return f"{self.name}'s"


def told(text: str, speaker: Speaker, listener: Speaker | None) -> str:
    """Return a sentence of a speaker in the third person.

    Args:
        text: one sentence, in English.
        speaker: who says it.
        listener: who is spoken to, when that is one person with a name.
    """
    return _Teller(speaker, listener).told(with_subject(text))


def with_subject(text: str) -> str:
    """Return a sentence with the "I" that it leaves out."""
    if not _BEGUN.match(text) or _GERUND_SUBJECT.match(text):
        return text
    verb = next((word for word in text.lower().split() if not _goes_before(word)), "")
    link = "am " if verb == "gonna" or verb.endswith("ing") else "have " if verb == "been" else ""
    return f"I {link}{text[0].lower()}{text[1:]}"


class _Teller:
    """One sentence on its way into the third person."""

    def __init__(self, speaker: Speaker, listener: Speaker | None) -> None:
        self._speaker = speaker
        self._listener = listener
        self._is_named_already = False
        self._are_several = False

    def told(self, text: str) -> str:
        text = _AND_I.sub(lambda match: f"I and {(match[1] or match[2]).strip().lower()}", text.replace("’", "'"))
        self._are_several = bool(_SEVERAL.search(text))
        parts = [piece for part in _PART.findall(text) for piece in _apart(part)]
        self._tell(parts)
        said = re.sub(r"\s+", " ", "".join(parts)).strip()
        return said[:1].upper() + said[1:]

    def _tell(self, parts: list[str]) -> None:
        expects = ""  # "singular" or "plural": the next word may be a verb of the speaker's
        joined = False  # a verb in the present went before: one after "and" goes with it
        for place, part in enumerate(parts):
            low = part.lower()
            if part.isspace() or (expects and _goes_before(low)):
                continue
            if low in _SUBJECTS:
                expects = self._subject(parts, place)
            elif low == "you" and self._listener and _is_subject(parts, place):
                parts[place] = self._listener.name
                expects = "singular"
            elif expects:
                joined = self._verb(parts, place, expects)
                expects = ""
            elif joined and (low in _JOINING or low == ","):
                expects = "singular" if _is_verb_next(parts, place) else ""
            else:
                joined = joined and low not in verbs.MODALS and part not in ";:"
                parts[place] = self._other(part, parts[place - 2].lower() if place > 1 else "")

    def _subject(self, parts: list[str], place: int) -> str:
        """Name the speaker once; return how a verb after it goes."""
        is_first = not self._is_named_already
        is_several = self._are_several and parts[place].lower() == "we"
        name = f"{self._speaker.name} and others" if is_several else self._speaker.name
        parts[place] = name if is_first else "they"
        self._is_named_already = True
        if _following(parts, place)[:1] == ["and"]:
            return ""
        return "singular" if is_first and not is_several and not _is_joined(parts, place) else "plural"

    def _verb(self, parts: list[str], place: int, expects: str) -> bool:
        """Put a verb in its form; tell whether it changed, so that others that go with it will have to."""
        verb = parts[place]
        if verb.lower() == "would" and _is_had(parts, place):
            verb = "had"
        form = verbs.singular(verb) if expects == "singular" else verbs.plural(verb)
        parts[place] = form
        return expects == "singular" and form == verbs.third(verb.lower())

    def _other(self, part: str, before: str) -> str:
        """Return what stands for a word that isn't a subject or its verb, after the word before."""
        low = part.lower()
        if low in _OWNERS:
            return self._named(self._speaker.owner, "their" + _OWNERS[low])
        if low in _OBJECTS:
            others = " and others" if low == "us" and (self._are_several or before == "of") else ""
            return self._named(self._speaker.name + others, "them")
        if low in _SELVES:
            return _SELVES[low]
        return self._listeners(low) or part

    def _listeners(self, low: str) -> str:
        if self._listener is None:
            return ""
        return {"you": self._listener.name, "your": self._listener.owner, "yours": self._listener.owner}.get(low, "")

    def _named(self, first: str, later: str) -> str:
        said = later if self._is_named_already else first
        self._is_named_already = True
        return said


def _apart(part: str) -> list[str]:
    """Return a word, or the two that it is short for."""
    low = part.lower()
    if low in _SHORT and (low not in ("im", "ive") or part[0] == "I"):
        return [piece for word in _SHORT[low].split() for piece in (*_apart(word), " ")][:-1]
    head, mark, ending = low.partition("'")
    if head in (*_SUBJECTS, "you") and mark and ending in ("m", "re", "ve", "ll", "d"):
        return [part[: len(head)], " ", _CONTRACTIONS.get(f"'{ending}", "would")]
    return [part]


def _goes_before(word: str) -> bool:
    """Tell whether a word may stand between a subject and its verb."""
    return word in _BEFORE_VERB or (word.endswith("ly") and not verbs.is_base(word))


def _following(parts: Sequence[str], place: int) -> list[str]:
    """Return the next two words or marks, in lower case, without adverbs."""
    ahead = (part.lower() for part in parts[place + 1 : place + 12])
    return [part for part in ahead if not part.isspace() and not _goes_before(part)][:2]


def _is_joined(parts: Sequence[str], place: int) -> bool:
    """Tell whether "and I" at the beginning joins two subjects: "Jonas and I go", but not "it rained and I stay"."""
    before = [part.lower() for part in parts[:place] if not part.isspace()]
    return 2 <= len(before) <= 4 and before[-1] == "and" and not any(map(verbs.is_finite, before))


def _is_subject(parts: Sequence[str], place: int) -> bool:
    """Tell whether "you" is the subject of a clause: a verb that only a subject has follows, or a clause begins."""
    before = [part.lower() for part in parts[max(0, place - 2) : place] if not part.isspace()]
    following = _following(parts, place)[:1]
    if not following or following[0] in ("are", "were", "have", "do", "don't", "aren't", "weren't", "haven't"):
        return bool(following)
    return (not before or before[-1] in _CLAUSE_STARTS) and verbs.is_base(following[0])


def _is_had(parts: Sequence[str], place: int) -> bool:
    """Tell whether "would" out of "'d" stands for "had"."""
    following = _following(parts, place)[:1]
    return any(word == "better" or (verbs.is_participle(word) and not verbs.is_base(word)) for word in following)


def _is_verb_next(parts: Sequence[str], place: int) -> bool:
    """Tell whether a verb follows, and not a noun of the same form: something stands after it."""
    following = _following(parts, place)
    return (
        len(following) == 2
        and verbs.is_base(following[0])
        and following[1][0].isalpha()
        and following[1] not in _JOINING
    )
