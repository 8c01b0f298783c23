"""Parse statements in sentences. A statement has a subject, an attribute and a value.

Model engines write sentences in the third person ("Nora moved to Bergen on 3 March 2026."). The engine without a model
quotes the first person ("Nora: I moved to Bergen"). In English, both are parsed in the same way, so a statement from
one engine can end a statement from the other: "I" and "my" refer to the speaker in front of the sentence, or to the
user if there is none. In other languages, only the first person is parsed.

`tables/attributes.txt` has the patterns. It is better to miss a sentence than to misread one, so the patterns are
strict. Dreams, wishes, suppositions, questions and quotes of other people aren't statements. Neither is a denial about
home or work, unless it says that something ended.

The attribute or the words of a statement determine its kind and how long it is kept.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

from moments_app.engines import times
from moments_app.engines.statements.dates import has_future_time
from moments_app.engines.words import any_pattern, fill_pattern, table_lines, table_words

HOME, WORK, NAME, AGE, RELATIONSHIP = "home", "work", "name", "age", "relationship"
ENGLISH = "en"
USER = "User"
# "Nora: I live in Oslo", as in transcripts and quotes.
SPEAKER = re.compile(r"^([^\W\d_][\w'’.-]{0,30}(?: [^\W\d_][\w'’.-]{1,30})?): (?=\S)")
# First-person forms are replaced by "I", so that the patterns for names such as "Nora" also match them.
_SHORT = [
    (re.compile(short), long)
    for short, long in (
        (r"\b(?:I|[Ww]e)'m\b|\b[Ww]e(?:'re| are)\b", "I am"),
        (r"\b(?:I|[Ww]e)'ve\b", "I have"),
        (r"\b(?:I|[Ww]e)'ll\b", "I will"),
        (r"\b[Ww]e\b", "I"),
        (r"\b[Mm]y\b|\b[Oo]ur\b", "I's"),
        (r"^[Nn]ame's (?=[A-Z][\w' -]*[.!]?$)", "I's name is "),
        (r"name's\b", "name is"),
        (r"\bintroduce myself: (?=(?!I'm)[A-Z][\w'-]+ [A-Z][\w'-]+[,.])", "introduce myself; I is called "),
        (
            r"\b(?:(?:I's )?[Ff]riends|(?:[Mm]ost )?[Pp]eople|[Ee]very(?:body|one)) (?:just )?calls? me "
            r"(?=[A-Z][\w'-]+(?:[,.!]|$| and\b))",
            "I is called ",
        ),
        (
            r"(^|[,;.!–-] ?|\b(?:and|but|so) )(?:(?:[Yy]ou (?:can|may)|[Pp]lease) )?(?:just )?[Cc]all me (?=[A-Z])",
            r"\1I is called ",
        ),
    )
]
_IN_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|My|my|We|[Cc]alls? me|introduce myself)\b|^[Nn]ame's\b")
_LEFT_OUT = re.compile(r"(?<=[\u4e00-\u9fff]) … | \[[^\]]{4,40}\]")  # omissions in a quote, and dates added to it
_CLAUSES = re.compile(r"(?:[,;:–—!.-]| and| but| so| because| since|^\w+,?) (?=I\b)")
_ARTICLE = re.compile(r"^(?:an?|the) ")
_NEW = re.compile(r"\b(?:now|new|started|starts|began|got|moved|instead|these days|currently|actually)\b")
_EMPLOYER = re.compile(
    rf"^(?:{'|'.join(table_words('firms', 'firm'))})$|\b(?:{'|'.join(table_words('firms', 'kind'))})\.?$"
)

# Named parts for the patterns of all languages except English.
_PROPER = r"[A-ZÀ-ÞĀ-ŽА-ЯЁ][\w'’-]*"
_HAN = r"\u4e00-\u9fff"
_SURNAMES = (  # the 100 most common
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪"
    "范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤"
)
_PARTS = {
    "PROPER": _PROPER,
    "NAMED": rf"(?P<value>{_PROPER}(?: {_PROPER}){{0,2}})",
    "PLACE": rf"(?P<value>{_PROPER}(?:[ -](?:(?:de|del|la|el|sur|am|an der) )?{_PROPER}){{0,2}})",
    "FIRM": rf"(?P<employer>{_PROPER}(?: {_PROPER}){{0,2}})",
    "ROLE": r"(?P<role>[^\W\d_][\w-]+)",
    # up to five words or numbers between a verb and its object: "am 3. März"
    "FEW": r"(?: (?:[\d.]+|[\w,'’-]+)){0,5}?",
    "HAN": _HAN,
    # A surname and a given name. Words for people, such as 高中生 or 江苏人, may start with the same characters.
    "HAN_NAME": rf"[{_SURNAMES}][{_HAN}]{{1,2}}(?<![人者生师员工家座])",
    "HAN_PLACE": rf"(?P<value>(?:(?![的了和跟，])[{_HAN}]){{2,8}}?)(?=[了，,。.！!；;、\s]|$|和|跟|的|已)",
}
# Named parts for the English patterns.
_WORD = r"[A-ZÀ-Þ][\w'’&.-]*[\w']"
_TOWN = rf"{_WORD}(?:[ -](?:(?:de|del|la|le|am|an der|the|upon) )?{_WORD})*"
_FIRM = rf"(?P<employer>(?:the )?{_WORD}(?: (?:(?:and|of|&) )?{_WORD})*|(?:an?|the) [\w -]{{3,40}}?)"
_END = (
    r"(?=[.,;!]|$| (?:now|since|in|on|and|from|these|but|which|where|near|as|to|again|last|today|yesterday"
    r"|any ?more|any longer)\b)"
)
_AT = rf"(?: (?:at|for|with) {_FIRM})?{_END}"
_WRONG = rf"(?P<wrong>{_WORD}(?: {_WORD})?)"
_ROLE = r"(?P<role>[a-z][\w-]*(?: (?!at\b|for\b|in\b|with\b|since\b|and\b|but\b|now\b|on\b|near\b)[a-z][\w-]*){0,4})"
_ENGLISH_PARTS = {
    # Skip a capitalized first word that is not a name: "Recently Nora moved". Don't match "Since Nora moved".
    "SUBJECT": r"^(?:(?:Now|Recently|Lately|Currently|Today|Yesterday|Finally|Also|So|And|But),? )?"
    r"(?!(?:Since|When|Because|After|Before|Although|Though|While|If|Once|Until|Unless|As|Then|Maybe|Perhaps)\b)"
    r"(?P<subject>(?:The (?:user|assistant))|I\b|[A-ZÀ-Þ][\w-]*(?: [A-ZÀ-Þ][\w-]*)?)",
    "ADVERBS": r"(?: (?:now|currently|still|just|recently|also|actually|finally|only|already"
    r"|have|has|had|am|is|was|been|got|did))*",
    "NOW": r"(?: (?:now|currently|still|just|also|actually))*",
    "PLACE": rf"(?P<value>{_TOWN})",
    "TOWN": _TOWN,
    "FIRM": f"{_FIRM}{_END}",
    "AS": rf"as (?:an? |the )?{_ROLE}",
    "AT": _AT,
    "END": _END,
    "POST": r"(?:(?:their|his|her|I's|the|a) )?(?:old |last |new )?(?:job|position|post|work)",
    "CALLED": rf"(?P<value>(?:(?:Dr|Prof|Mrs?|Ms|[A-Z])\. ){{0,3}}{_WORD}(?: {_WORD})?)",
    "WRONG": _WRONG,
    "KIN": r"(?P<kin>(?:(?!new\b)[a-z]+ )?(?:daughter|son|child|baby|wife|husband|partner|girlfriend|boyfriend"
    r"|fianc[ée]e?|mother|father|mom|mum|dad|brother|sister|dog|cat|puppy|kitten|horse|grandson|granddaughter|boss"
    r"|best friend))",
}
_NOT = re.compile(rf",? (?:and )?(?:not|rather than|instead of) {_WRONG}")
_QUESTION = re.compile(r"[?？؟]+[\"'”’)\]»]*\s*$")
# A quotation in the usual marks, including the German single marks ‚ and ‘. A straight mark after a digit can't open a
# quotation, because it may mean inches.
QUOTATION = re.compile(
    "|".join(
        rf"{opening}[^{excluded}\n]+[{closing}]"
        for opening, closing, excluded in (
            (r'(?<!\d)"', '"', '"'),
            ("“", "“”", "“”„"),
            ("„", '"“”', '"“”„'),
            ("«", "»", "«»"),
            (r"»(?=\w)", "«", "«»"),
            ("‚", "‘", "‚‘"),
            ("「", "」", "「」"),
            ("『", "』", "『』"),
        )
    )
)
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|my|ich|mein\w*|yo|mi|je|mon|я|мой)\b")
# These words, capitalized or not, also occur in titles, such as «Mon oncle». They count only if the quotation begins
# the text, or follows a colon, a comma or a Chinese verb such as 说.
_FIRST_PERSON_OR_TITLE = re.compile(
    r"\b(?:my|ich|mein\w*|yo|mi|soy|estoy|tengo|vivo|trabajo|je|mon|ma|я|мо[йя]|живу|работаю)\b|\bj'|我",
    re.IGNORECASE,
)
_BEFORE_SPEECH = re.compile(r"[:：,，说道喊问写讲]\s*$")
OTHER, PLAN = "other", "plan"
MAX_WORTH = 1.0  # worth of a statement that sets an attribute
# kind of a statement by its attribute; the default is `relationship`
_OF_ATTRIBUTES = {HOME: "home", WORK: "work", NAME: "identity", AGE: "identity"}


@dataclass(frozen=True)
class Statement:
    """A statement about a person's attribute."""

    subject: str  # the person
    # `home`, `work`, `name`, `age` or `relationship`. If the value is the name of a relative or pet, their relationship
    # to the person, such as `daughter`.
    attribute: str
    value: str  # for work, the occupation, the employer or both; blank means any value
    is_over: bool = False  # whether the person no longer has the value
    wrong: str = ""  # the incorrect value that the statement corrects
    is_new: bool = False  # whether the statement says that the value has changed

    @property
    def is_exclusive(self) -> bool:
        """True if the attribute has one value at a time. Other attributes may have several, such as two daughters."""
        return self.attribute in (HOME, WORK, NAME, AGE, RELATIONSHIP)

    def ends(self, earlier: "Statement") -> bool | None:
        """Return whether this statement ends an earlier one about the same attribute, or None if that is uncertain."""
        if earlier.is_over or (not self.is_over and self._agrees_with(earlier)):
            return False
        if self.is_over:
            return not self.value or self._has_value_of(earlier)
        return True if self.corrects(earlier) or self.is_exclusive else None

    def corrects(self, earlier: "Statement") -> bool:
        """Return whether this statement corrects the earlier one, whose value was never true."""
        return bool(self.wrong) and self.wrong.casefold() == earlier.value.casefold()

    def _agrees_with(self, earlier: "Statement") -> bool:
        has_its_value = self._has_value_of(earlier)
        is_another_job = self.attribute == WORK and self.is_new and self.value.casefold() != earlier.value.casefold()
        return has_its_value and not is_another_job

    def _has_value_of(self, earlier: "Statement") -> bool:
        if self.attribute != WORK:
            return self.value.casefold() == earlier.value.casefold()
        (role, employer), (earlier_role, earlier_employer) = _work(self), _work(earlier)
        return (not role or not earlier_role or role == earlier_role) and _may_be_same_employer(
            employer, earlier_employer
        )


def _may_be_same_employer(firm: str, other: str) -> bool:
    """Return whether two names may mean the same employer: "Haukeland" is short for "Haukeland Hospital"."""
    return not firm or not other or f"{firm} ".startswith(f"{other} ") or f"{other} ".startswith(f"{firm} ")


def _work(statement: Statement) -> tuple[str, str]:
    role, _, employer = statement.value.casefold().rpartition("at ")
    return (role.strip(), employer.strip()) if "at " in f"{statement.value} " else (statement.value.casefold(), "")


class _Pattern(NamedTuple):
    attribute: str
    mark: str  # "-" if the value is no longer true, "+" if it is new, otherwise blank
    pattern: re.Pattern[str]  # with a group for the value, and in English with another one for the subject


def load() -> None:
    """Compile the patterns now instead of on first use. This takes a tenth of a second."""
    _patterns(in_english=True)
    _patterns(in_english=False)
    _kinds()
    _worths()


@cache
def _patterns(*, in_english: bool) -> list[_Pattern]:
    return list(_compiled(in_english=in_english))


def _compiled(*, in_english: bool) -> Iterator[_Pattern]:
    for head, pattern in table_lines("attributes"):
        language, attribute = head.split(" ")
        occupations = "|".join(table_words("occupations", language))
        own = {"OCCUPATIONS": occupations, "OCCUPATION": rf"(?P<role>(?i:{occupations})[\w-]*)"}
        parts = _ENGLISH_PARTS if language == ENGLISH else _PARTS
        if in_english == (language == ENGLISH):
            compiled = re.compile(fill_pattern(pattern, own | parts))
            yield _Pattern(attribute.lstrip("+-"), attribute[: attribute[0] in "+-"], compiled)


@cache
def _kinds() -> list[tuple[str, re.Pattern[str]]]:
    return [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in table_lines("kinds")]


@cache
def _worths() -> list[tuple[float, re.Pattern[str]]]:
    parts = {kind.upper(): pattern for kind, pattern in table_lines("kinds")}
    return [(float(worth), re.compile(fill_pattern(pattern, parts))) for worth, pattern in table_lines("worth")]


def statement_of(text: str) -> Statement | None:
    """Return the statement in a sentence, or None if no pattern matches. The sentence may start with its speaker."""
    line = SPEAKER.match(text)
    found = _statement_in(text[line.end() :] if line else text)
    return replace(found, subject=line[1] if line else USER) if found and found.subject == "I" else found


@lru_cache(maxsize=2_000)  # builds and contexts read the same sentences repeatedly, with and without their speakers
def _statement_in(text: str) -> Statement | None:
    """Return the statement in a sentence that names no speaker. "I" means the speaker."""
    said = _LEFT_OUT.sub("", text).replace(" … ", " ")
    if is_not_asserted(said):
        return None
    found = _first_match(said, _patterns(in_english=False))
    if not found and not _IN_FIRST_PERSON.search(said):
        return _first_match(said, _patterns(in_english=True))
    clauses = (_first_match(clause, _patterns(in_english=True)) for clause in _clauses(said))
    found = found or next(filter(None, clauses), None)
    return found if found and found.subject == "I" else None


def _clauses(text: str) -> list[str]:
    """Split a sentence into clauses, with "I" instead of other first-person forms."""
    text = text.replace("’", "'")
    for short, long in _SHORT:
        text = short.sub(long, text)
    return _CLAUSES.split(text)


def _first_match(text: str, patterns: Sequence[_Pattern]) -> Statement | None:
    matches = ((one, found) for one in patterns if (found := one.pattern.search(text)))
    return next(filter(None, (_from_match(one, found) for one, found in matches)), None)


def _from_match(one: _Pattern, found: re.Match[str]) -> Statement | None:
    named = found.groupdict()
    attribute, value = named.get("kin") or one.attribute, _value_in(named)
    first = value.split(" ")[0]
    if not value and one.mark != "-":
        return None
    if "subject" in named and first in times.calendar_names():  # in English, "I moved in May" names no place
        return None
    if attribute == HOME and one.mark == "+":  # "moved to" an employer means a new job; "moved to Linux" is not a move
        if first in table_words("firms", "other"):
            return None
        if _EMPLOYER.search(value):
            attribute, value = WORK, f"at {value}"
    subject = re.sub(r"^The (\w)", lambda the: the[1].upper(), named.get("subject") or "I")
    denied = _NOT.search(found.string, found.end())
    wrong = named.get("wrong") or (denied["wrong"] if denied else "")
    is_new = one.mark == "+" or bool(_NEW.search(found.string))
    return Statement(subject, attribute, value, one.mark == "-", wrong, is_new)


def _value_in(named: dict[str, str | None]) -> str:
    role, employer = _ARTICLE.sub("", (named.get("role") or "").strip()), (named.get("employer") or "").strip()
    value = named.get("value") or " ".join(filter(None, (role, employer and f"at {employer}")))
    return value.strip().rstrip(".'’-")


def is_question(text: str) -> bool:
    return bool(_QUESTION.search(text))


@lru_cache(maxsize=2_000)  # the same sentence is checked several times
def is_not_asserted(text: str) -> bool:
    """Return whether a sentence is a question, or something that its speaker doesn't claim to be true."""
    said = text.replace("’", "'")
    return is_question(said) or bool(any_pattern("unreal").search(said)) or _quotes_first_person(said)


def _quotes_first_person(text: str) -> bool:
    """Return whether a text quotes a sentence in the first person."""
    return any(
        _FIRST_PERSON.search(found[0]) or (_FIRST_PERSON_OR_TITLE.search(found[0]) and _is_speech(text, found.start()))
        for found in QUOTATION.finditer(text)
    )


def _is_speech(text: str, start: int) -> bool:
    """Return whether a quotation begins the text, or follows a colon, a comma or a Chinese verb of saying."""
    return not start or bool(_BEFORE_SPEECH.search(text, max(start - 3, 0), start))


def kind_of(text: str) -> str:
    """Return the kind of a statement, or `other` if none of its words indicates a kind."""
    if said := statement_of(text):
        return _OF_ATTRIBUTES.get(said.attribute, "relationship")
    found = (kind for kind, pattern in _kinds() if pattern.search(text) or (kind == PLAN and has_future_time(text)))
    return next(found, OTHER)


def worth_of(text: str) -> float:
    """Return the worth of a new text, from 0 to 1. Text with a higher worth is kept longer."""
    if statement_of(text):
        return MAX_WORTH
    return next((worth for worth, pattern in _worths() if pattern.search(text)), 0.0)
