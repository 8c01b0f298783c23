"""Topics: what a person comes back to, not what was at hand once.

A topic is named in several of their turns, far apart, or in earlier moments as well. What is counted or measured
("forty cups", "300 degrees") is no subject where it is, and neither is a name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from moments_app.engines.calls.moments import KnownMoment
from moments_app.engines.calls.profile import Profile
from moments_app.engines.extractive.language import stem, words
from moments_app.engines.extractive.persons import persons_in
from moments_app.engines.extractive.phrases import Subject, stems_of, subjects
from moments_app.engines.extractive.sentences import Window

TOPICS = 5  # of one answer
OWN = 2  # of the person's turns, at least
RECURRING = 3  # of them, with the moments before
APART = 0.5  # of the window, between the first and the last
BEFORE = 2  # moments, where the turns are near each other


@dataclass
class _Subject:
    """What is named in a window, and where.

    Args:
        text: as it was said first.
        turns: that name it, by their places.
        own: those of them that are the person's.
    """

    text: str
    turns: set[int] = field(default_factory=set)
    own: set[int] = field(default_factory=set)


def new_topics(profile: Profile, before: Sequence[KnownMoment], window: Window) -> list[str]:
    """Return what the person comes back to, and isn't known as a topic.

    Args:
        profile: so far.
        before: the latest moments.
        window: that was read.
    """
    known = [stems_of([topic], window.language) for topic in profile.preferred_topics]
    earlier = [frozenset(map(stem, words(f"{moment.name} {moment.summary}"))) for moment in before]
    found = _named(window)
    counts = {stems: sum(said.issuperset(stems) for said in earlier) for stems in found}
    ranked = sorted(found, key=lambda stems: (-len(found[stems].turns) - counts[stems], -len(stems), stems))
    recurring = [stems for stems in ranked if _recurs(found[stems], counts[stems], len(window.turns))]
    chosen: list[tuple[str, ...]] = []
    for stems in recurring:
        if not any(set(stems) & set(other) for other in chosen):
            chosen.append(stems)
    return [found[stems].text for stems in chosen[:TOPICS] if not any(topic.issuperset(stems) for topic in known)]


def _named(window: Window) -> dict[tuple[str, ...], _Subject]:
    """Return what is named, but for people, by its stems; of a phrase of several words also its end."""
    without = stems_of([*window.called, *persons_in(window.sentences)], window.language)
    found: dict[tuple[str, ...], _Subject] = {}
    for place, group in enumerate(window.by_turn):
        for subject in (named for one in group for named in subjects(one.text, one.language)):
            if not subject.is_name and not subject.is_counted and without.isdisjoint(subject.stems):
                _note(found, subject, place, is_own=window.turns[place].role == "user")
    return found


def _note(found: dict[tuple[str, ...], _Subject], subject: Subject, place: int, *, is_own: bool) -> None:
    said = subject.text.split()
    for start in range(len(said)):
        known = found.setdefault(subject.stems[start:], _Subject(" ".join(said[start:])))
        known.turns.add(place)
        if is_own:
            known.own.add(place)


def _recurs(subject: _Subject, before: int, size: int) -> bool:
    """Tell whether the person comes back to something in a window of so many turns, or after earlier moments."""
    if len(subject.own) < OWN or len(subject.own) + before < RECURRING:
        return False
    return before >= BEFORE or max(subject.turns) - min(subject.turns) >= APART * size
