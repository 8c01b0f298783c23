"""The request for a search of memory, and the time mentioned in a query."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, tzinfo
from functools import cached_property
from struct import pack, unpack

from django.utils import timezone

from moments_app.engines import times
from moments_app.engines.times import Time
from moments_app.engines.words import fold, in_digits
from sessions_app import lexemes
from sessions_app.models import UserProfile

# Words that mark a question about the past, in the most common languages.
_PAST = re.compile(
    r"\b(?:used to|before|previous(?:ly)?|former(?:ly)?|earlier|ago|back (?:then|when)|at (?:the|that) time|once|until|"
    r"in the past|history|no longer|any ?more|did|was|were|had|"
    r"last (?:year|month|week|spring|summer|autumn|fall|winter)|"
    r"(?:in|during|since|back in) (?:january|february|march|april|may|june|july|august|september|october|november|"
    r"december|(?:19|20)\d\d)|früher|vorher|damals|zuvor|avant|autrefois|antes|prima)\b",
    re.IGNORECASE,
)
# Words that address the assistant. In Spanish, Italian and Portuguese, the verb form is sufficient.
_ADDRESSED = re.compile(
    r"\b(?i:you|yours?|du|dich|dir|dein\w*|tu|te|toi|ton|vous|votre|tú|usted|voi|você|hai|jij|jou\w*|"
    r"\w{2,}[aei]ste|ты|тебе|тебя|вы|вам|вас)\b|\b(?i:t['’](?:as|es|avais)\b)|(?<=\w[ ])(?:Sie|Ihnen|Ihr\w*)\b|[你您]"
)
FACT = "fact"
MAX_WORDS = 64  # maximum words of a query that are searched
KINDS = (FACT, "moment", "turn")
MODES = ("hybrid", "semantic", "text")


@dataclass(frozen=True)
class Vector:
    """A query's vector, with the primary key and the number of dimensions of the model that created it."""

    model: int
    dimensions: int
    numbers: list[float]

    @cached_property
    def text(self) -> str:
        """The vector as a `halfvec` literal. Five digits are enough to distinguish half-precision numbers."""
        form = f"{len(self.numbers)}e"
        numbers = unpack(form, pack(form, *self.numbers))
        return f"[{','.join(['%.5g'] * len(numbers))}]" % numbers


@dataclass(frozen=True)
class RecallRequest:
    text: str
    kinds: Sequence[str] = KINDS
    since: datetime | None = None  # only messages from this time or later
    mode: str = "hybrid"  # one of `MODES`
    vector: Vector | None = None  # None: only text search is used
    # only messages up to this time, and only facts that were known to be valid then
    as_of: datetime | None = None
    # the reranker's scores, keyed by `rem://` address; results with a score are sorted by it
    relevances: Mapping[str, float] = field(default_factory=dict)
    until: datetime | None = None  # only messages before this time
    about: str = ""  # only facts about the user (`SELF`) or about the known person with this key; blank: about anyone
    must_fit: bool = False  # a context shows results only if one of them fits the text

    @property
    def searched_kinds(self) -> Sequence[str]:
        """The kinds to search. If the request is about one person, only facts are searched."""
        return [kind for kind in self.kinds if kind == FACT or not self.about]

    def now_of(self, user: UserProfile) -> datetime:
        """Return the time that the request asks about, in the person's time zone."""
        return (self.as_of or timezone.now()).astimezone(user.zone)

    @cached_property
    def asks_about_past(self) -> bool:
        return self.as_of is not None or bool(_PAST.search(self.text))

    @cached_property
    def asks_assistant(self) -> bool:
        """True if the query seems to address the assistant, as in "What did you suggest?"."""
        return bool(_ADDRESSED.search(self.text))

    @property
    def degraded(self) -> bool:
        """True if the request needs a vector for semantic search, but has none."""
        return self.mode != "text" and self.vector is None

    @property
    def used_mode(self) -> str:
        return "text" if self.degraded else self.mode

    @property
    def searched_vector(self) -> Vector | None:
        return self.vector if self.mode != "text" else None

    def by_mode(self) -> "list[RecallRequest]":
        modes = ("text", "semantic") if self.used_mode == "hybrid" else (self.used_mode,)
        return [replace(self, mode=mode) for mode in modes]


# --- times in a query ---
#
# "yesterday" or "on 17 November" becomes a span of days in the person's time zone. Future times are ignored, and so is
# "today" in "What should I cook today?".

MAX_TIMED_QUERY_CHARS = 300  # maximum characters of a query; longer texts mention times but don't ask about them
_TIME_FORMS = (times.RELATIVE, times.ABSOLUTE, times.ASKED)
_WEEK = timedelta(days=7, hours=1)  # plus an hour, in case the clocks are set back
_PARTS = {
    "morning": (time(0), time(12)),
    "afternoon": (time(12), time(18)),
    "evening": (time(17), time(23, 59, 59)),
}
_EVENING = time(17)
_NIGHTS_END = time(5)


@dataclass(frozen=True)
class Span:
    """A span of time mentioned in a query, and the other words of the query."""

    since: datetime  # the start of the span, with a time zone
    until: datetime  # the end of the span (exclusive)
    words: frozenset[str] = frozenset()  # the words that express the span, in lower case
    other_words: str = ""  # the other words of the query
    is_whole_query: bool = True  # whether the query only asks what was said in the span

    def has(self, moment: datetime) -> bool:
        return self.since <= moment < self.until


def span_in(text: str, now: datetime) -> Span | None:
    """Return the first past span mentioned in a query. Return None if there is none, or if the query is too long.

    Args:
        now: the time in the person's time zone.
    """
    if len(text) > MAX_TIMED_QUERY_CHARS:
        return None
    likely = times.likely_languages(text)
    digits = in_digits(text, likely)
    found = _first_past_time(digits, likely, now)
    if found is None and not lexemes.certain_language(text):
        others = [language for language in times.latin_languages() if language not in likely]
        found = _first_past_time(digits, others, now, times.LATIN_SHORTEST)
    if found is None:
        return None
    (begin, end), (first, last) = found
    rest = f"{digits[:first]} {digits[last:]}"
    is_whole_query = _asks_nothing_else(rest, likely)
    is_under_way = end > now and end - begin <= _WEEK
    named = frozenset(re.findall(r"\w+", digits[first:last].lower()))
    return None if is_under_way and not is_whole_query else Span(begin, end, named, rest.strip(), is_whole_query)


Bounds = tuple[datetime, datetime]


def _first_past_time(
    digits: str, languages: Iterable[str], now: datetime, shortest: int = 0
) -> tuple[Bounds, tuple[int, int]] | None:
    """Return the first past time in the text, and its position.

    If several times start at this position, prefer the longest, then the latest.
    """
    found = [
        (bounds, (one.start, one.end))
        for one in times.times_in(digits, languages, _TIME_FORMS, now.date())
        if one.end - one.start >= shortest and (bounds := _bounds(one.time, now.tzinfo))[0] <= now
    ]
    return min(found, key=lambda one: (one[1][0], -one[1][1], now - one[0][0]), default=None)


def _bounds(named: Time, zone: tzinfo | None) -> Bounds:
    if named.name in _PARTS:
        first, last = _PARTS[named.name]
        return _local_time(named.first, first, zone), _local_time(named.first, last, zone)
    if named.unit == "part":
        return _local_time(named.first, _EVENING, zone), _local_time(named.end, _NIGHTS_END, zone)
    return _local_time(named.first, time(0), zone), _local_time(named.end, time(0), zone)


def _local_time(day: date, clock: time, zone: tzinfo | None) -> datetime:
    return datetime.combine(day, clock, zone)


def _asks_nothing_else(rest: str, languages: Collection[str]) -> bool:
    """Return whether the other words of a query only ask what was said."""
    known = {*languages, lexemes.DEFAULT}
    asking = times.any_of(word for language in known for word in times.words_for("asking", language))
    stop = frozenset(fold(word) for language in known for word in lexemes.stop_words(language))
    if known & times.UNSPACED:
        return not re.sub(rf"[\W\d_]|{asking}" if asking else r"[\W\d_]", "", rest)
    is_asking = re.compile(asking or "(?!)")
    words = re.findall(r"[^\W\d_]+", rest)
    return all(len(word) == 1 or word in stop or is_asking.fullmatch(word) for word in words)
