"""The profile: what the person says about themselves, word for word under headings, and their interests."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta

from moments_app.engines.calls.profile import Profile
from moments_app.engines.extractive.kinds import (
    DURABLE,
    HEALTH,
    INSTRUCTION,
    LIKED,
    LIKES,
    OTHER,
    PEOPLE,
    PLANS,
    WHO,
    WORK,
)
from moments_app.engines.extractive.language import ENGLISH, content_words, stem, words
from moments_app.engines.extractive.sentences import Sentence, Window, information
from moments_app.engines.extractive.tables import word_set

PROFILE_MAX = 2_000  # characters
LINE_MAX = 160  # characters of a line
STALE = timedelta(days=120)  # after which a plan has been carried out or given up
KNOWN = 0.7  # of a statement's words that a line has
LINES = 8  # of a heading
LONG = 16  # words: each more makes a line weigh less
INTERESTS = 10  # of one answer
RECURRING = 2  # sentences
HEADINGS = {
    WHO: "Who they are:",
    PEOPLE: "People and pets:",
    WORK: "Work and study:",
    HEALTH: "Health:",
    LIKES: "Likes and dislikes:",
    PLANS: "Plans:",
    INSTRUCTION: "How to answer:",
    OTHER: "In their own words:",  # in a language with fewer words in the tables
}
_DATE = re.compile(r" \((\d{4}-\d\d-\d\d)\)$")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]")
_NUMBER = re.compile(r"\d+")


def profile_text(profile: Profile, window: Window) -> tuple[str, dict[str, list[int]]]:
    """Return the profile so far with what is new that the person says about themselves, a line for each sentence.

    With it comes the index of the turn that each new line is from. What stands before the first heading, or without a
    date, stays: it may be an operator's. Beyond the limit, the lines that say least are dropped.
    """
    pages = _Pages(profile.summary)
    stated = [one for one in window.sentences if one.turn.role == "user" and one.lasts and len(one.quote) <= LINE_MAX]
    for sentence in sorted(stated, key=lambda one: -information(one, window.weights)):
        pages.offer(sentence)
    pages.drop_plans(before=f"{window.turns[-1].created_at - STALE:%Y-%m-%d}")
    return pages.text()[:8_000], pages.sources


class _Pages:
    """A profile's lines under their headings, as many as there is room for.

    Args:
        summary: the profile so far.
    """

    def __init__(self, summary: str) -> None:
        self._head: list[str] = []
        self._lines: dict[str, list[_Line]] = {kind: [] for kind in HEADINGS}
        self.sources: dict[str, list[int]] = {}
        kinds = {heading: kind for kind, heading in HEADINGS.items()}
        kind = ""
        for text in filter(str.strip, summary.split("\n")):
            if text.strip() in kinds:
                kind = kinds[text.strip()]
            elif kind and text.startswith("- "):
                self._add(kind, _Line(text))
            else:
                self._head.append(text)
        self._head_words = frozenset(words("\n".join(self._head)))

    def offer(self, sentence: Sentence) -> None:
        """Take a statement in, unless a line says it or better ones leave no room."""
        line = _Line(f"- {sentence.quote} ({sentence.turn.created_at:%Y-%m-%d})")
        known = [self._head_words, *(one.words for lines in self._lines.values() for one in lines)]
        if not any(len(line.words & said) >= KNOWN * len(line.words) for said in known):
            self.sources[line.text] = [sentence.turn.index]
            self._add(sentence.kinds[0] if sentence.kinds else WHO, line)

    def drop_plans(self, *, before: str) -> None:
        """Drop the plans of long ago."""
        self._lines[PLANS] = [line for line in self._lines[PLANS] if not line.date or line.date >= before]

    def _add(self, kind: str, line: "_Line") -> None:
        lines = self._lines[kind]
        lines.append(line)
        lines.sort(key=lambda one: one.date)
        if len(lines) > LINES:
            self._drop_least_of([kind])
        while len(self.text()) > PROFILE_MAX and self._drop_least_of(self._lines):
            pass

    def _drop_least_of(self, kinds: Iterable[str]) -> bool:
        """Drop the line that says least, if there is one with a date: those without are an operator's."""
        dated = [(DURABLE[kind] + one.weight, kind, one) for kind in kinds for one in self._lines[kind] if one.date]
        if dated:
            _weight, kind, line = min(dated, key=lambda one: one[0])
            self._lines[kind].remove(line)
        return bool(dated)

    def text(self) -> str:
        pages = [[HEADINGS[kind], *(line.text for line in lines)] for kind, lines in self._lines.items() if lines]
        return "\n".join([*self._head, *(line for page in pages for line in page)])


class _Line:
    """A line of a profile, with what it weighs when there is no room for all.

    Args:
        text: with its mark before it, and its date behind.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        match = _DATE.search(text)
        self.date = match[1] if match else ""
        said = _DATE.sub("", text.removeprefix("- "))
        self.words = frozenset(content_words(said, ENGLISH))
        names = len(_NAME.findall(said)) + len(_NUMBER.findall(said))
        lasting = 2 * bool(frozenset(words(said)) & word_set("kin", "pets", "activities"))
        self.weight = min(len(self.words), 5) + 2 * min(names, 3) + lasting - max(len(said.split()) - LONG, 0) / 4


def new_interests(profile: Profile, window: Window) -> list[str]:
    """Return what people do that the person says they like, or names again, and aren't known for."""
    own = [one for one in window.sentences if one.turn.role == "user" and one.is_statement and one.is_of_speaker]
    counts = Counter[str]()
    for one in own:
        named = [word for word in words(one.core) if word in word_set("activities")]
        counts.update(dict.fromkeys(named, RECURRING if LIKED.search(one.core) else 1))
    return _unlike((text for text, count in counts.most_common() if count >= RECURRING), profile.interests)


def _unlike(wanted: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return interests that are no other form of one that is known or stands before: "dances", "dancing"."""
    forms = {_form(interest) for interest in known}
    new: list[str] = []
    for text in wanted:
        if _form(text) not in forms:
            forms.add(_form(text))
            new.append(text)
    return new[:INTERESTS]


def _form(interest: str) -> str:
    return stem(interest.casefold()).removesuffix("ing").rstrip("e")
