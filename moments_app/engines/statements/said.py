"""Patterns that read a sentence as somebody's attribute and its value: in the third person, or in the first.

"I live in Oslo" is read as "User lives in Oslo" is: "I" and "my" stand for whoever the line names as its speaker
("Nora: I live in Oslo"), and for the user where it names nobody. `first_person.py` has the other languages.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from moments_app.engines import times
from moments_app.engines.statements.firms import is_firm, is_no_place
from moments_app.engines.statements.first_person import (
    AGE,
    HOME,
    NAME,
    OCCUPATIONS,
    RELATIONSHIP,
    SPEAKER,
    WORK,
    read_attribute,
)
from moments_app.engines.statements.unreal import is_unreal

USER = "User"
# How "I" is spelled out, so that the patterns for "Nora" read it as well.
_SHORT = [
    (re.compile(short), long)
    for short, long in (
        (r"\b(?:I|[Ww]e)'m\b|\b[Ww]e(?:'re| are)\b", "I am"),
        (r"\b(?:I|[Ww]e)'ve\b", "I have"),
        (r"\b(?:I|[Ww]e)'ll\b", "I will"),
        (r"\b[Ww]e\b", "I"),
        (r"\b[Mm]y\b|\b[Oo]ur\b", "I's"),
        (r"name's\b", "name is"),
        (
            r"\b(?:[Yy]ou (?:can|may) |[Pp]lease |[Pp]eople |[Ee]verybody |[Ff]riends )?[Cc]alls? me (?=[A-Z])",
            "I is called ",
        ),
    )
]
_IN_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|My|my|We|[Cc]alls? me)\b")
_LEFT_OUT = re.compile(r"(?<=[\u4e00-\u9fff]) … | \[[^\]]{4,40}\]")  # from a quote, and dates put into it
_CLAUSES = re.compile(r"(?:[,;:–—!.-]| and| but| so| because| since|^\w+,?) (?=I\b)")

_NOT_PLACES = frozenset(map(str.title, (*times.names("month_name"), *times.names("weekday"))))
# A capital letter at the beginning is no name yet: "Recently Nora moved", or "Since Nora moved", which is left alone.
_SUBJECT = (
    r"^(?:(?:Now|Recently|Lately|Currently|Today|Yesterday|Finally|Also|So|And|But),? )?"
    r"(?!(?:Since|When|Because|After|Before|Although|Though|While|If|Once|Until|Unless|As|Then|Maybe|Perhaps)\b)"
    r"(?P<subject>(?:The (?:user|assistant))|I\b|[A-ZÀ-Þ][\w-]*(?: [A-ZÀ-Þ][\w-]*)?)"
)
_ADVERBS = (
    r"(?: (?:now|currently|still|just|recently|also|actually|finally|only|already"
    r"|have|has|had|am|is|was|been|got|did))*"
)
_NEW = re.compile(r"\b(?:now|new|started|starts|began|got|moved|instead|these days|currently|actually)\b")
_PROPER = r"[A-ZÀ-Þ][\w'’&.-]*[\w']"
_PLACE = rf"(?P<value>{_PROPER}(?:[ -](?:(?:de|del|la|le|am|an der|the|upon) )?{_PROPER})*)"
_FIRM = rf"(?:the )?{_PROPER}(?: (?:(?:and|of|&) )?{_PROPER})*|(?:an?|the) [\w -]{{3,40}}?"
_ROLE = r"(?P<role>[a-z][\w-]*(?: (?!at\b|for\b|in\b|with\b|since\b|and\b|but\b|now\b|on\b|near\b)[a-z][\w-]*){0,4})"
_END = r"(?=[.,;!]|$| (?:now|since|in|on|and|from|these|but|which|where|near|as|to|again|last|today)\b)"
_AT = rf"(?: (?:at|for|with) (?P<employer>{_FIRM}))?{_END}"
_NOW = r"(?: (?:now|currently|still|just|also|actually))*"
_OCCUPATION = rf"an? (?P<role>(?:(?!former\b)[a-z][\w-]* ){{0,2}}(?:{OCCUPATIONS['en']})(?: (?:worker|designer))?)\b"
_KIN = (
    r"(?P<kin>(?:(?!new\b)[a-z]+ )?(?:daughter|son|child|baby|wife|husband|partner|girlfriend|boyfriend|fianc[ée]e?|"
    r"mother|father|mom|mum|dad|brother|sister|dog|cat|puppy|kitten|horse|grandson|granddaughter|boss|best friend))"
)
_CALLED = rf"(?P<value>{_PROPER}(?: {_PROPER})?)"
_NOT = re.compile(rf",? (?:and )?(?:not|rather than|instead of) (?P<wrong>{_PROPER}(?: {_PROPER})?)")
# Capitalized words after "I am" that aren't names, such as nationalities and religions.
_NO_NAME = (
    r"(?!\w+(?:ish|ese|ch|ic|gian|lian|ican|sian|rian|dian|mian|nian|tian|pean|uan|ish)\b|German|Greek|Dutch|Muslim"
    r"|Jewish|Hindu|Buddhist|Thai|Finn|Dane|Swede|Roman|Swiss|Iraqi|Pakistani|Not\b|OK|Ok|Fine|Good)"
)
_STATES = "single|married|divorced|engaged|widowed|separated"


@dataclass(frozen=True)
class Statement:
    """That somebody's attribute has a value.

    Args:
        subject: who.
        attribute: `home`, `work`, `name`, `age`, `relationship`, or what the one is to them whose name it is.
        value: as it was said; of work what as and where, as far as either was said; blank: whatever it was.
        is_over: it no longer has that value.
        wrong: the value that it corrects; blank where it corrects none.
        is_new: it says that something changed.
    """

    subject: str
    attribute: str
    value: str
    is_over: bool = False
    wrong: str = ""
    is_new: bool = False

    @property
    def is_exclusive(self) -> bool:
        """True if there is never a second value at one time; there may be two daughters."""
        return self.attribute in (HOME, WORK, NAME, AGE, RELATIONSHIP)

    def ends(self, earlier: "Statement") -> bool | None:
        """Tell whether an earlier statement of the same attribute doesn't hold beside this; None: maybe."""
        if earlier.is_over or (not self.is_over and self._says(earlier)):
            return False
        if self.is_over:
            return not self.value or self._has_value_of(earlier)
        if self.wrong:
            return self.wrong.casefold() == earlier.value.casefold() or (True if self.is_exclusive else None)
        return True if self.is_exclusive else None

    def corrects(self, earlier: "Statement") -> bool:
        """Tell whether an earlier statement never held."""
        return bool(self.wrong) and self.wrong.casefold() == earlier.value.casefold()

    def _says(self, earlier: "Statement") -> bool:
        """Tell whether both can be true at once."""
        has_its_value = self._has_value_of(earlier)
        is_another_job = self.attribute == WORK and self.is_new and self.value.casefold() != earlier.value.casefold()
        return has_its_value and not is_another_job

    def _has_value_of(self, earlier: "Statement") -> bool:
        if self.attribute != WORK:
            return self.value.casefold() == earlier.value.casefold()
        return all(not a or not b or a == b for a, b in zip(_work(self), _work(earlier), strict=True))


def _work(statement: Statement) -> tuple[str, str]:
    role, _, employer = statement.value.casefold().rpartition("at ")
    return (role.strip(), employer.strip()) if "at " in f"{statement.value} " else (statement.value.casefold(), "")


@lru_cache(maxsize=2_000)  # a build, and each context, read the same sentences several times
def statement_of(text: str) -> Statement | None:
    """Return what a sentence says, if it is read as an attribute of somebody.

    Args:
        text: a sentence, with its speaker in front or without.
    """
    line = SPEAKER.match(text)
    speaker, said = (line[1], text[line.end() :]) if line else (USER, text)
    said = _LEFT_OUT.sub("", said).replace(" … ", " ")
    if is_unreal(said):
        return None
    if own := read_attribute(said):
        attribute, value, is_over, is_new = own
        return Statement(speaker, attribute, value, is_over, is_new=is_new)
    if _IN_FIRST_PERSON.search(said):
        found = next(filter(None, map(_read, _clauses(said))), None)
        return replace(found, subject=speaker) if found and found.subject == "I" else None
    return _read(said)


def _read(text: str) -> Statement | None:
    for pattern, read in _PATTERNS:
        if (found := pattern.search(text)) and (statement := read(found)):
            return statement
    return None


def _clauses(text: str) -> list[str]:
    """Return the clauses of a sentence in the first person, with "I" where a sentence in the third has a name."""
    text = text.replace("’", "'")
    for short, long in _SHORT:
        text = short.sub(long, text)
    return _CLAUSES.split(text)


def _reading(
    attribute: str, *, is_over: bool = False, is_new: bool | None = None
) -> Callable[[re.Match[str]], Statement | None]:
    def read(found: re.Match[str]) -> Statement | None:
        named = found.groupdict()
        value = _value(named)
        if value.split(" ")[0] in _NOT_PLACES or (not value and not is_over):
            return None
        wrong = _NOT.search(found.string[found.end() :])
        changed = bool(_NEW.search(found.string)) if is_new is None else is_new
        return Statement(
            _subject(found), named.get("kin") or attribute, value, is_over, wrong["wrong"] if wrong else "", changed
        )

    return read


def _subject(found: re.Match[str]) -> str:
    return re.sub(r"^The (\w)", lambda the: the[1].upper(), found["subject"])


def _value(named: dict[str, str | None]) -> str:
    if "role" not in named and "employer" not in named:
        return (named.get("value") or "").strip().rstrip(".")
    employer = named.get("employer")
    at = f"at {employer.strip()}" if employer else ""
    return " ".join(filter(None, (_without_article(named.get("role") or ""), at)))


def _without_article(role: str) -> str:
    return re.sub(r"^(?:an?|the) ", "", role.strip())


_LEAVES = r"(?:quits?|left|lost|resigned from|retired from|was fired from|was laid off from)"
_POST = r"(?:(?:their|his|her|I's|the|a) )?(?:old |last |new )?(?:job|position|post|work)"
_AS = rf"as (?:an? |the )?{_ROLE}"
_WORKS = rf"{_SUBJECT}{_ADVERBS} (?:works?|working)(?: (?:now|again))?"
_LIVES = r"(?:lives?|living|based|resides?|settled)(?: (?:now|currently|back|down|again))* (?:in|near) (?!with\b)"
_MOVED = rf"(?:moved|relocated)(?: (?:back|out|over|house))*(?: from {_PLACE.replace('?P<value>', '?:')})? (?:to|into)"
_BEGINS = r"(?:starts|started|begins|began|got|took|accepted|landed|has)(?: working)?"
_LEFT_HOME = r"(?:used to live|no longer lives?|moved (?:away|out))(?: (?:in|from|of))+"
_NOT_ANYMORE = r"(?:do not|does not|don't|doesn't)"
_ANYMORE = r"[^,;]*\b(?:any ?more|any longer)\b"
_LEFT_WORK = r"(?:used to work|no longer works?|stopped working)"


def _moved(found: re.Match[str]) -> Statement | None:
    """Read a move: to an employer it is one of work; to a department or a system it is neither."""
    to = found["value"]
    if is_no_place(to):
        return None
    if is_firm(to):
        return Statement(_subject(found), WORK, f"at {to}", is_new=True)
    return _reading(HOME, is_new=True)(found)


def _started(found: re.Match[str]) -> Statement | None:
    """Read a beginning; a job is only one where it is called so, or says what as."""
    named = found.groupdict()
    if named["firm"] and not re.search(r"\b(?:job|position|post|work|working)\b", found[0]):
        return None
    value = _value({"role": named["role"], "employer": named["employer"] or named["firm"]})
    return Statement(_subject(found), WORK, value, is_new=True) if value else None


_PATTERNS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], Statement | None]]] = [
    (re.compile(pattern), read)
    for pattern, read in (
        # what is over
        (rf"{_SUBJECT}{_ADVERBS} {_LEFT_HOME} {_PLACE}", _reading(HOME, is_over=True)),
        (rf"{_SUBJECT} {_NOT_ANYMORE} live in {_PLACE}{_ANYMORE}", _reading(HOME, is_over=True)),
        (rf"{_SUBJECT} {_LEFT_WORK}(?: {_AS})?{_AT}", _reading(WORK, is_over=True)),
        (rf"{_SUBJECT} {_NOT_ANYMORE} work(?: {_AS})?{_AT}{_ANYMORE}", _reading(WORK, is_over=True)),
        (rf"{_SUBJECT}{_ADVERBS} {_LEAVES} {_POST}(?: {_AS})?{_AT}", _reading(WORK, is_over=True)),
        (rf"{_SUBJECT}{_ADVERBS} (?P<value>)(?:retired|unemployed|out of work)\b", _reading(WORK, is_over=True)),
        # what holds
        (rf"{_SUBJECT}{_ADVERBS} {_LIVES}{_PLACE}", _reading(HOME)),
        (rf"{_SUBJECT}{_ADVERBS} {_MOVED} {_PLACE}", _moved),
        (rf"{_SUBJECT}'s (?:new )?home is (?:now )?(?:in )?{_PLACE}", _reading(HOME)),
        (rf"{_WORKS} {_AS}{_AT}", _reading(WORK)),
        (rf"{_SUBJECT}{_NOW} (?:is|am) {_OCCUPATION}{_AT}", _reading(WORK)),
        (rf"{_WORKS} (?:at|for) (?P<employer>{_FIRM}){_END}", _reading(WORK)),
        (rf"{_SUBJECT}{_ADVERBS} {_BEGINS}(?: {_POST})? (?:{_AS}{_AT}|(?:at|with) (?P<firm>{_FIRM}){_END})", _started),
        (
            rf"{_SUBJECT}(?:'s (?:first |full )?name is| (?:is|am) (?:called|named)| goe?s? by) {_CALLED}",
            _reading(NAME),
        ),
        (rf"^(?P<subject>I) am {_NO_NAME}{_CALLED}(?=[,.!]|$| and\b| from\b)", _reading(NAME)),
        (
            rf"{_SUBJECT}'s {_KIN}(?:'s (?:first )?name)? (?:is|are) (?:actually )?(?:(?:called|named) )?{_CALLED}",
            _reading(""),
        ),
        (rf"{_SUBJECT}{_ADVERBS} (?:has|have|adopted|got) an? {_KIN} (?:called|named) {_CALLED}", _reading("")),
        (rf"{_SUBJECT}{_ADVERBS} (?:is|turned) (?P<value>\d{{1,3}})(?: years? old\b|{_END})", _reading(AGE)),
        (rf"{_SUBJECT}{_ADVERBS}(?: is)? (?P<value>{_STATES}){_END}", _reading(RELATIONSHIP)),
    )
]
