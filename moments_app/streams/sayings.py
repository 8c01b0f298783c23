"""What was said alike, by whom, and what is known of them: what a release by rule is made of and judged by."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.conf import settings

from moments_app.models import Entity, MemoryAtom, Moment
from moments_app.models.stream import LESSONS
from moments_app.streams import alike
from moments_app.streams.impersonal import ABOUT_SOMEBODY, Known, names_in, problem_of_source, stems_of
from moments_app.streams.release import PEOPLE, source_turns
from moments_app.turns.words import without_speaker
from sessions_app.models import UserProfile

ROWS = 200  # of a kind, the newest, that tell of a person
KNOWN_CHARS = 2_000  # of what is known of a person, for an engine


@dataclass(frozen=True)
class Screened:
    """The candidates of a group that count, and by reason the primary keys of those that don't."""

    counting: Sequence[MemoryAtom]
    problems: dict[str, list[int]]

    @property
    def people(self) -> int:
        """The number of those who said it."""
        return len({atom.user_id for atom in self.counting})

    @property
    def is_enough(self) -> bool:
        """True when enough people said it."""
        return self.people >= settings.SHARING.people


def screened(group: int) -> Screened:
    """Return who of a group counts: those whose words are free of what is one person's, or an attack."""
    counting: list[MemoryAtom] = []
    problems: dict[str, list[int]] = {}
    for atom in alike.members(group)[:PEOPLE]:
        if problem := _problem_of(atom):
            problems.setdefault(problem, []).append(atom.pk)
        else:
            counting.append(atom)
    return Screened(counting, problems)


def _problem_of(atom: MemoryAtom) -> str:
    if atom.related_users:
        return ABOUT_SOMEBODY
    return problem_of_source(without_speaker(atom.content), is_lesson=atom.stream.name == LESSONS)


@dataclass(frozen=True)
class Said:
    """What one person said, and what is known of them.

    Args:
        pk: of the candidate.
        user: primary key.
        text: of the candidate.
        turns: that it was made of.
        known: of the person.
        told: what is known, in words.
    """

    pk: int
    user: int
    text: str
    turns: Sequence[str]
    known: Known
    told: str


def said_in(atom: MemoryAtom) -> Said:
    """Return what was said, with what is known of whoever said it."""
    assert atom.user is not None
    turns = [turn.content for turn in source_turns(atom)]
    own, others = "\n".join(_words_of(atom.user)), "\n".join(_names_around(atom.user))
    names = frozenset[str]().union(*map(names_in, [own, *turns]), stems_of(others))
    told = f"{others}\n{own}"[:KNOWN_CHARS]
    return Said(atom.pk, atom.user.pk, without_speaker(atom.content), turns, Known(names, stems_of(own)), told)


def _words_of(user: UserProfile) -> Iterator[str]:
    """Yield what is known of a person."""
    yield from (user.summary, *user.interests, *user.preferred_topics)
    titles = Entity.objects.for_user(user).order_by("-pk").values_list("title", "body")[:ROWS]
    yield from (text for row in titles for text in row)


def _names_around(user: UserProfile) -> Iterator[str]:
    """Yield the names of a person and of those around them."""
    yield user.user_id
    present = Moment.objects.for_user(user).order_by("-pk").values_list("present_persons", flat=True)[:ROWS]
    yield from (name for names in present for name in names)
