"""Grounding: check whether the conversation supports what a model wrote.

A model may invent facts, answer in another language, or repeat an injected instruction. Rules compare each sentence
with the conversation and with earlier known text. A sentence is dropped, with the reason, if one of its numbers or
names was never mentioned, if it shares hardly any words with the conversation, or if it instructs its reader. Numbers
and names that can be derived from the conversation are accepted. Content that the rules can't judge is kept, for
example names in German, where every noun is capitalized.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Generic, TypeVar

from pydantic import BaseModel

from moments_app.engines import times
from moments_app.engines.numbers import (
    counts_of_lists,
    decades_in_digits,
    derived_numbers,
    numbers_in,
    spans_of_years,
    years_since,
)
from moments_app.engines.transcript import Turn
from moments_app.engines.words import fold, in_digits
from sessions_app import lexemes

MIN_SHARE = 0.25  # minimum share of a sentence's words that must be in the conversation; 0.5 would drop paraphrases
FEW_WORDS = 6  # minimum words of a sentence for which this share is checked
# minimum bytes of a sentence whose language is checked; not characters, because Chinese needs fewer of them
FEW_BYTES = 60
NAME_STEM = 5  # names match if this many first letters are the same: Tuscan, Tuscany
INITIALS_MAX = 6  # maximum letters of initials such as NYC
ASKED_SHARE = 0.6  # minimum share of an instruction's words that must be in one of the user's instructions

INSTRUCTION = "instruction to the reader"
LANGUAGE = "another language"
NUMBER = "number nobody said"
NAME = "name nobody said"
WORDS = "not what was said"

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])(\s+)|(\s*\n\s*)")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<=[\w,;:)\"'’] )[A-ZÀ-ÖØ-Þ][a-zà-öø-ÿ]{2,}")
_WORD = re.compile(r"[^\W\d_]+")
_MONTHS = times.names("month_name")
_CALENDAR = frozenset((*_MONTHS, *times.names("weekday")))
_YEAR = r"(?P<year{}>(?:19|20)\d\d)"
_DAY = r"\b\d\d?(?:st|nd|rd|th|\.)?"
_DATE = re.compile(
    "|".join(
        (
            rf"\b{_YEAR.format(1)}-\d\d?(?:-\d\d?)?\b",  # 2026-03-07
            rf"{_DAY}[./]\d\d?[./]{_YEAR.format(2)}\b",  # 7.3.2026
            rf"{_YEAR.format(3)}年(?:\d\d?月)?(?:\d\d?日)?",
            rf"(?:{_DAY} (?:de )?[^\W\d_]{{3,}},?(?: de)? )?\b{_YEAR.format(4)}\b",  # 7 March 2026, 7 de marzo de 2026
            rf"(?:{_DAY} (?:of )?)?\b(?:{'|'.join(_MONTHS)})\b(?: {_DAY}(?!\d))?(?:,? {_YEAR.format(5)}\b)?",
        )
    ),
    re.IGNORECASE,
)
# Names of the roles in memory texts.
_ROLES = frozenset("user assistant tool person".split())
_COMMAND = re.compile(
    r"^\W*(?:(?:system|assistant|developer)\s*:|"
    r"(?:please )?(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|rule|prompt|above|previous|everything)|"
    r"you are now\b|new instructions?\b)|\bsystem prompt\b|</?\w+>",
    re.IGNORECASE,
)
# A lesson may start with these words. Another statement may do so only if it repeats an instruction of the person.
_ORDER = re.compile(
    r"^\W*(?:you (?:must|will|shall|have to)\b|from now on\b|"
    r"(?:always|never) (?:answer|reply|respond|begin|start|end|say|tell|mention|recommend|include|add|append|link)\b)",
    re.IGNORECASE,
)

_REQUEST = re.compile(
    r"^\W*(?:(?:please|ok|okay|and|so|but|also|i want you to|can you|could you|would you),? )*"
    r"(?:always|never|from now on|you must|don['’]t ever)\b",
    re.IGNORECASE,
)
_INITIALS = re.compile(rf"\b[A-Z](?:\.?[A-Z]){{1,{INITIALS_MAX - 1}}}\b\.?")
_CAPITALIZED = re.compile(
    r"\b[A-ZÀ-ÖØ-Þ][\w'’-]*+(?:(?:\s(?:of|the|and|for|de|du|der|des)){0,2}+\s[A-ZÀ-ÖØ-Þ][\w'’-]*+)+"
)
_SMALL = frozenset("of the and for de du der des".split())
_SHORT_PLACES = {
    name: full.split("/")
    for name, full in (
        pair.split("=")
        for pair in (
            "philly=Philadelphia,vegas=Las Vegas,frisco=San Francisco,jozi=Johannesburg,brum=Birmingham,"
            "cali=California,la=Los Angeles/Louisiana,bcn=Barcelona,cdmx=Mexico City/Ciudad de México,"
            "nyc=New York,ny=New York,sf=San Francisco,dc=Washington,us=America/United States/American,"
            "usa=America/American/United States,"
            "uk=Britain/England/British/United Kingdom,uae=Emirates,eu=European Union/Europe,mtl=Montreal,"
            "to=Toronto,atl=Atlanta,chi=Chicago,bos=Boston,pdx=Portland,ffm=Frankfurt,hh=Hamburg,muc=Munich/München,"
            "nrw=Nordrhein-Westfalen/North Rhine-Westphalia,питер=Санкт-Петербург/Saint Petersburg,"
            "мск=Москва/Moscow,спб=Санкт-Петербург,tx=Texas,ca=California,fl=Florida,wa=Washington,il=Illinois,"
            "pa=Pennsylvania,ma=Massachusetts,nj=New Jersey,oh=Ohio,ga=Georgia,va=Virginia,az=Arizona,co=Colorado"
        ).split(",")
    )
}

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True)
class DroppedItem:
    text: str
    reason: str


@dataclass
class CheckedAnswer(Generic[Answer]):
    """The supported part of an answer, and what was dropped."""

    answer: Answer
    kept: int = 0  # number of sentences and items that were kept
    left_out: list[DroppedItem] = field(default_factory=list)
    problem: str = ""  # the reason to call the model again; blank if there is none
    is_usable: bool = False  # whether the answer to the last attempt can be used although it has a problem

    @property
    def dropped(self) -> Counter[str]:
        return Counter(one.reason for one in self.left_out)


AnswerCheck = Callable[[Answer], CheckedAnswer[Answer]]


class Evidence:
    """Checks a model's answer against the texts that the model received, and records the results.

    Args:
        turns: the turns that the answer is about.
        known: other texts that may support the answer.
        call_texts: the texts of all turns of a combined call. They support names, but no other content.
    """

    def __init__(self, turns: Sequence[Turn] = (), known: Iterable[str] = (), call_texts: Collection[str] = ()) -> None:
        self._turn_texts = [f"{turn.name} {turn.content} {turn.tool_calls}" for turn in turns]
        self._texts = [*self._turn_texts, *known]
        self._call_texts = call_texts
        self._user_texts = [turn.content for turn in turns if turn.role == "user"]
        self._said_at = [turn.created_at for turn in turns]
        self._years = {turn.created_at.year for turn in turns}
        self._times = [f"{turn.created_at:%Y-%m-%d %H:%M}" for turn in turns]
        self.kept_count = 0
        self.left_out: list[DroppedItem] = []

    def checked_answer(self, answer: Answer, problem: str = "", *, is_usable: bool = False) -> CheckedAnswer[Answer]:
        return CheckedAnswer(answer, self.kept_count, self.left_out, problem, is_usable)

    def supported(self, text: str, *, may_instruct: bool = False) -> str:
        """Return the supported sentences of a text. Drop instructions to the reader, unless `may_instruct` is set."""
        parts = [part for part in _SENTENCE_END.split(text) if part is not None]
        kept = ""
        for sentence, space in zip(parts[::2], [*parts[1::2], ""], strict=False):
            if self.accepts(sentence, self.drop_reason(sentence, may_instruct=may_instruct)):
                kept += sentence + space
        return kept.strip()

    def without_instructions(self, items: Iterable[str]) -> list[str]:
        """Return the short items that don't instruct their reader."""
        return [item for item in items if self.accepts(item, INSTRUCTION if _instructs(item) else "")]

    def mentioned(self, names: Iterable[str]) -> list[str]:
        """Return the names that occur in the conversation."""
        return [name for name in names if self.accepts(name, "" if self._has_named(name) else NAME)]

    def accepts(self, text: str, reason: str) -> bool:
        """Record a text as kept, or as dropped for a reason. Return whether it is kept."""
        if reason:
            self.left_out.append(DroppedItem(text, reason))
        elif text.strip():
            self.kept_count += 1
        return not reason

    def drop_reason(
        self, text: str, *, may_instruct: bool = False, may_repeat_instruction: bool = True, may_be_weak: bool = False
    ) -> str:
        """Return the reason to drop a sentence, without quoting it. Return "" to keep the sentence.

        Args:
            may_instruct: Whether the sentence may instruct its reader.
            may_repeat_instruction: Whether the sentence may repeat an instruction that the person gave to the
                assistant.
            may_be_weak: Whether a single word of the conversation is enough support. The caller then marks weak
                sentences (`is_weak`).
        """
        text = unicodedata.normalize("NFKC", text)
        if _instructs(text, may_instruct=may_instruct or (may_repeat_instruction and self._repeats_instruction(text))):
            return INSTRUCTION
        share, count = self._share_of(text)
        if share < 0.5 and self._is_foreign(text):
            return LANGUAGE
        if count >= FEW_WORDS and share < MIN_SHARE and not (share and may_be_weak):
            return WORDS
        if not self._unsaid_numbers(text) <= self._counts:
            return NUMBER
        return "" if self._has_names_of(text) else NAME

    def is_weak(self, text: str) -> bool:
        """Return whether a sentence shares few words with the conversation, or has a number that counts list items."""
        share, count = self._share_of(text)
        return (count >= FEW_WORDS and share < MIN_SHARE) or bool(self._unsaid_numbers(text))

    # --- the texts that the model received ---

    def _stems_in(self, text: str) -> frozenset[str]:
        """Return the stems of a text in all likely languages, because the language of a short text is uncertain."""
        return lexemes.stems_in(text, self._likely_languages)

    @cached_property
    def _likely_languages(self) -> tuple[str, ...]:
        return lexemes.languages_of(self._turn_texts or self._texts)

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset(stem for text in self._texts for stem in self._stems_in(text))

    @cached_property
    def _names(self) -> frozenset[str]:
        texts = [*self._texts, *self._call_texts]
        return frozenset(word[:NAME_STEM].casefold() for text in texts for word in _WORD.findall(text))

    @cached_property
    def _in_digits(self) -> list[str]:
        languages = self._likely_languages
        return [in_digits(decades_in_digits(fold(text)), languages) for text in self._texts]

    @cached_property
    def _numbers(self) -> frozenset[str]:
        written = {number for text in [*self._texts, *self._in_digits, *self._times] for number in _digits(text)}
        derived = (derived_numbers(text, at) for text, at in self._dated)
        return frozenset(written.union(*(map(str, numbers) for numbers in derived)))

    @cached_property
    def _years_since(self) -> frozenset[int]:
        return frozenset().union(*(years_since(text, at) for text, at in self._dated))

    @property
    def _dated(self) -> Iterable[tuple[str, datetime]]:
        """The texts with number words as digits, each with its time. Known texts get the time of the latest turn."""
        if not self._said_at:
            return ()
        known = len(self._texts) - len(self._turn_texts)
        return zip(self._in_digits, [*self._said_at, *[max(self._said_at)] * known], strict=True)

    @cached_property
    def _counts(self) -> frozenset[str]:
        return frozenset(str(count) for text in self._in_digits for count in counts_of_lists(text))

    @cached_property
    def _short_names(self) -> tuple[frozenset[str], frozenset[str]]:
        return _short_names_in(self._texts)

    @cached_property
    def _languages(self) -> frozenset[str]:
        """The languages of the conversation, and "" for uncertain turns. Empty if its longest turns are uncertain."""
        whole = lexemes.certain_language(" ".join(sorted(self._turn_texts, key=len)[-5:]))
        return frozenset({"", whole, *map(lexemes.certain_language, self._turn_texts)} if whole else ())

    # --- judging ---

    def _is_foreign(self, text: str) -> bool:
        if len(text.encode()) < FEW_BYTES or not self._languages:
            return False
        return lexemes.certain_language(text) not in self._languages

    def _share_of(self, text: str) -> tuple[float, int]:
        """Return the share of a text's stems that are in the conversation, and the number of stems."""
        stems = {stem for stem in self._stems_in(text) if not stem.isdigit()}
        return (len(stems & self._stems) / len(stems) if stems else 1.0), len(stems)

    def _repeats_instruction(self, text: str) -> bool:
        stems = self._stems_in(text)
        if not stems or not _ORDER.search(text):
            return False
        orders = (
            part for said in self._user_texts for part in _SENTENCE_END.split(said) if part and _REQUEST.search(part)
        )
        return any(len(stems & self._stems_in(order)) >= ASKED_SHARE * len(stems) for order in orders)

    def _unsaid_numbers(self, text: str) -> set[str]:
        """Return the numbers of a text that were never mentioned. Dates within a year of a turn are accepted."""
        text = _DATE.sub(lambda date: "" if self._is_near(date) else date[0], text)
        spans = {str(span) for span in spans_of_years(fold(text)) & self._years_since}
        return {number for number, forms in numbers_in(text) if not forms & self._numbers and not forms & spans}

    def _is_near(self, date: re.Match[str]) -> bool:
        years = [int(year) for name, year in date.groupdict().items() if year]
        return all(any(abs(year - said) <= 1 for said in self._years) for year in years)

    def _has_names_of(self, text: str) -> bool:
        # the language of this text, not of the conversation, which may have several
        if "de" in lexemes.likely_languages(text):
            return True
        initials, _places = self._short_names
        spelled_out = _spelled_out(text, initials)
        return all(self._is_named(name) or name.casefold() in spelled_out for name in _NAME.findall(text))

    def _has_named(self, name: str) -> bool:
        return any(map(self._is_named, _WORD.findall(name)))

    def _is_named(self, word: str) -> bool:
        small = word.casefold()
        _initials, places = self._short_names
        return small in _CALENDAR | _ROLES | places or small[:NAME_STEM] in self._names


def _instructs(text: str, *, may_instruct: bool = False) -> bool:
    return bool(_COMMAND.search(text) or (not may_instruct and _ORDER.search(text)))


def _digits(text: str) -> set[str]:
    # Both 1,000 and 1.000 become 1000.
    return {re.sub(r"\D", "", number) for number in _NUMBER.findall(text)}


# --- short names ---


def _short_names_in(texts: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the initials in texts ("NYC"), and the words in the full names of abbreviated places."""
    initials, words = set(), set()
    for text in texts:
        found = {match.replace(".", "") for match in _INITIALS.findall(text)}
        initials |= found
        short = {one.casefold() for one in found} | {*re.findall(r"[^\W\d_]{4,}", text.casefold())}
        full_names = (full for name in short & _SHORT_PLACES.keys() for full in _SHORT_PLACES[name])
        words |= {word for full in full_names for word in full.split()}
    return frozenset(initials), frozenset(word.casefold() for word in words)


def _spelled_out(text: str, initials: frozenset[str]) -> set[str]:
    """Return the words of names whose initials are given: "Massachusetts Institute of Technology" for "MIT"."""
    words: set[str] = set()
    for match in _CAPITALIZED.finditer(text):
        parts = [word for word in match[0].split() if word not in _SMALL]
        for first in range(len(parts)):
            for last in range(first + 2, min(first + INITIALS_MAX, len(parts)) + 1):
                if "".join(part[0] for part in parts[first:last]).upper() in initials:
                    words |= {part.casefold() for part in parts[first:last]}
    return words
