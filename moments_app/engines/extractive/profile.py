"""The profile: what the person says about themselves under headings, and their interests."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta

from moments_app.engines.calls.profile import Profile
from moments_app.engines.extractive import verbs
from moments_app.engines.extractive.formation import is_observation
from moments_app.engines.extractive.kinds import (
    DURABLE,
    HEALTH,
    LIKED,
    LIKES,
    PEOPLE,
    PLANS,
    PURSUED,
    WHO,
    WORK,
    kinds_of,
)
from moments_app.engines.extractive.language import ENGLISH, is_wide, language_of, stem, words
from moments_app.engines.extractive.phrases import Subject, stems_of, subjects
from moments_app.engines.extractive.sentences import USER, Sentence, Window, information
from moments_app.engines.extractive.speech import is_reaction
from moments_app.engines.extractive.tables import word_set
from moments_app.engines.extractive.voice import Speaker, told

PROFILE_MAX = 2_000  # characters
LINE_MAX = 160  # characters of a line
STALE = timedelta(days=120)  # after which a plan has been carried out or given up
KNOWN = 0.7  # of a statement's words that a line has
LINES = 8  # of a heading
LONG = 16  # words: each more makes a line weigh less
LINE_WORDS = (3, 30)  # of a statement: at least, at most
INTERESTS = 10  # of one answer
RECURRING = 2  # sentences
OTHER = "other"
HEADINGS = {
    WHO: "Who they are:",
    PEOPLE: "People and pets:",
    WORK: "Work and study:",
    HEALTH: "Health:",
    LIKES: "Likes and dislikes:",
    PLANS: "Plans:",
    OTHER: "In their own words:",  # in a language whose words are not known
}
_FIRST_LINES = frozenset(("In the person's own words:",))  # of profiles that earlier versions wrote


def profile_text(profile: Profile, window: Window) -> tuple[str, dict[str, list[int]]]:
    """Return the profile so far and what is new that the person says about themselves, a line for each statement.

    With it comes the index of the turn that each new line is from.

    What stands before the first heading, or without a date, stays: it may be an operator's. Beyond the limit, the lines
    that say least are dropped.
    """
    pages = _Pages(profile.summary, _person(window))
    stated = [one for one in window.sentences if is_observation(one) and _is_line(one)]
    for sentence in sorted(stated, key=lambda one: -information(one, window.weights)):
        pages.offer(sentence)
    pages.drop_plans(before=f"{window.turns[-1].created_at - STALE:%Y-%m-%d}")
    return pages.text()[:8_000], pages.sources


def _is_line(sentence: Sentence) -> bool:
    if is_wide(sentence.text):
        return len(sentence.told) <= LINE_MAX
    least, most = LINE_WORDS
    return least <= len(sentence.text.split()) <= most and len(sentence.told) <= LINE_MAX


def _person(window: Window) -> Speaker:
    """Return the one whose profile it is."""
    speakers = (
        speaker for turn, (speaker, _text) in zip(window.turns, window.speech, strict=True) if turn.role == "user"
    )
    return next(speakers, USER)


class _Pages:
    """A profile's lines under their headings, as many as there is room for.

    Args:
        summary: the profile so far.
        person: whose it is.
    """

    def __init__(self, summary: str, person: Speaker) -> None:
        self._head: list[str] = []
        self._lines: dict[str, list[_Line]] = {kind: [] for kind in HEADINGS}
        self.sources: dict[str, list[int]] = {}
        kinds = {heading: kind for kind, heading in HEADINGS.items()}
        kind = ""
        for text in filter(str.strip, summary.split("\n")):
            kind = kinds.get(text.strip(), kind)
            if text.strip() in kinds or text.strip() in _FIRST_LINES:
                continue
            if kind and text.startswith("- "):
                self._add(kind, _Line(text))
            elif text.startswith("- ") and _Line(text).date:
                self._take_over(text, person)
            else:
                self._head.append(text)
        self._head_words = frozenset(words("\n".join(self._head)))

    def _take_over(self, text: str, person: Speaker) -> None:
        """Give a line that an earlier version wrote its heading, or drop it: it was written in the first person."""
        line = _Line(text)
        if language_of([line.said]) != ENGLISH:
            self._add(OTHER, line)
        elif (kinds := kinds_of(line.said)) and not is_reaction(line.said):
            self._add(kinds[0], _Line(f"- {told(line.said.rstrip('.!'), person, None)} ({line.date})"))

    def offer(self, sentence: Sentence) -> None:
        """Take a statement in, unless a line says it or better ones leave no room."""
        line = _Line(f"- {sentence.told.rstrip('.。।')} ({sentence.turn.created_at:%Y-%m-%d})")
        known = [self._head_words, *(one.words for lines in self._lines.values() for one in lines)]
        if not any(len(line.words & said) >= KNOWN * len(line.words) for said in known):
            self.sources[line.text] = [sentence.turn.index]
            self._add(sentence.kinds[0] if sentence.kinds else OTHER, line)

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
        dated = [
            (DURABLE.get(kind, 0) + one.weight, kind, one) for kind in kinds for one in self._lines[kind] if one.date
        ]
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
        self.said = said = _DATE.sub("", text.removeprefix("- "))
        self.words = frozenset(words(said)) - word_set("function words")
        names = len(_NAME.findall(said)) + len(_NUMBER.findall(said))
        named = frozenset(words(said)) - _plain()
        lasting = 3 * bool(_LASTING.search(said)) + 2 * bool(named & word_set("kin", "pets", "activities"))
        self.weight = min(len(named), 5) + 2 * min(names, 3) + lasting - max(len(said.split()) - LONG, 0) / 4


_DATE = re.compile(r" \((\d{4}-\d\d-\d\d)\)$")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]")
_NUMBER = re.compile(r"\d+")
_LASTING = re.compile(
    r"\b(?:is (?:a|an|the|from|allergic)|lives? in|lived in|moved|born|works? (?:as|at|for|in)|named?|called|married|"
    r"birthday|years|grew up|lost|graduated|hired|promoted|retired|engaged|pregnant|adopted|teaches|studies|favou?rite|"
    r"diagnosed)\b"
)


def _plain() -> frozenset[str]:
    return word_set("function words", "chat words", "adverbs", "adjectives", "empty nouns")


def new_interests(profile: Profile, window: Window) -> list[str]:
    """Return what the person says they do, or like and name again, and aren't known to."""
    own = [one for one in window.sentences if one.turn.role == "user" and one.is_statement and one.language == ENGLISH]
    named = Counter(
        stem for one in own for stem in {stem for phrase in subjects(one.text, ENGLISH) for stem in phrase.stems}
    )
    counted = Counter[str]()
    for sentence in own:
        activities, pursuits = _activities(sentence), _pursuits(sentence)
        counted.update(dict.fromkeys(pursuits, RECURRING))
        counted.update({text: named[stem(text.split()[-1])] for text in _liked(sentence) if text not in pursuits})
        counted.update(activities)
    names = stems_of(window.called, ENGLISH)
    wanted = [text for text, count in counted.most_common() if count >= RECURRING and names.isdisjoint(text.split())]
    return _unlike(wanted, profile.interests)[:INTERESTS]


def _unlike(wanted: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return interests that are no other form of one that is known or stands before: "dances", "dancing"."""
    forms = {_form(interest) for interest in known}
    new: list[str] = []
    for text in wanted:
        if _form(text) not in forms:
            forms.add(_form(text))
            new.append(text)
    return new


def _form(interest: str) -> str:
    return verbs.gerund(stem(interest.casefold()))


def _liked(sentence: Sentence) -> list[str]:
    """Return what a sentence says that its speaker likes, but for names: a book is no interest."""
    said = LIKED.search(sentence.text)
    return [phrase.text for phrase in _first_named(sentence, said) if not phrase.is_name] if said else []


def _pursuits(sentence: Sentence) -> list[str]:
    """Return what a sentence says its speaker does: an activity by its name, else with a verb ("learning Dutch")."""
    said = PURSUED.search(sentence.text)
    if said is None:
        return []
    verb = said[0].split()[-1].lower()
    is_done = verbs.is_base(verb) or verbs.is_gerund(verb)
    return [
        f"{verbs.gerund(verb)} {phrase.text.title() if phrase.is_name else phrase.text}"
        if is_done and not _is_activity(phrase)
        else phrase.text
        for phrase in _first_named(sentence, said)
    ]


def _first_named(sentence: Sentence, said: re.Match[str]) -> Sequence[Subject]:
    """Return what is named first after a verb: read from that on, for the word before a name tells that it is one."""
    return subjects(sentence.text[said.end() - len(said[0].split()[-1]) :], ENGLISH)[:1]


def _is_activity(phrase: Subject) -> bool:
    return phrase.text.split()[-1] in word_set("activities")


def _activities(sentence: Sentence) -> set[str]:
    """Return what a sentence about its speaker names that people do."""
    if not sentence.is_of_speaker:
        return set()
    return {phrase.text.split()[-1] for phrase in subjects(sentence.text, ENGLISH) if _is_activity(phrase)}
