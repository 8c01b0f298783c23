"""A person's profile: a view of the current statements about them. No model writes it.

It starts with text from an operator or the application, followed by pinned statements. Other statements follow under
the headings of their kinds, up to a limit. The longest-lasting come first, then the newest.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from django.db import transaction

from moments_app.engines.extractive.language import common_words, stem, words
from moments_app.engines.tables import word_set
from moments_app.engines.words import undated_words, without_speaker
from moments_app.models import MemoryAtom
from moments_app.models.atom import INTEREST, SUMMARY, TOPIC, WRITTEN, MemoryAtomQuerySet
from sessions_app.models import UserProfile
from sessions_app.models.user_profile import DERIVED, PROFILE_LIST_MAX, united

READ = 300  # maximum statements for a profile, besides those written into it
PROFILE_MAX = 2_000  # maximum characters after the introductory text
LINES = 8  # maximum statements per heading
STALE = timedelta(days=120)  # age from which a plan counts as done or given up
INTERESTS = 10  # maximum interests that are derived from statements
TOPICS = 5  # maximum topics that are derived from statements
RECURRING = 2  # minimum statements that mention an interest
OFTEN = 3  # minimum statements that mention a topic
_KIND = MemoryAtom.Kind
HEADINGS = {
    _KIND.IDENTITY: "Who they are:",
    _KIND.RELATIONSHIP: "People and pets:",
    _KIND.HOME: "Home:",
    _KIND.WORK: "Work and study:",
    _KIND.HEALTH: "Health:",
    _KIND.PREFERENCE: "Likes and dislikes:",
    _KIND.INSTRUCTION: "How to answer:",
    _KIND.GOAL: "Goals:",
    _KIND.PLAN: "Plans:",
    _KIND.TASK: "Tasks:",
    _KIND.PROBLEM: "Problems:",
    _KIND.OTHER: "Other:",
}
_WORD = re.compile(r"[^\W\d_]{4,}")
_LIKES = re.compile(r"\b(?:loves?|likes?|enjoys?|favou?rite|interested in|fond of|keen on)\b", re.IGNORECASE)
_DISLIKES = re.compile(r"n't\b|\b(?:not|never|hates?|dislikes?|no longer)\b", re.IGNORECASE)


class Said(NamedTuple):
    """The fields of a `MemoryAtom` that a profile needs."""

    content: str
    kind: str
    formed_at: datetime
    is_pinned: bool
    attribute: str
    value: str


class Profile(NamedTuple):
    summary: str
    interests: list[str]
    preferred_topics: list[str]


@transaction.atomic(savepoint=False)
def rebuild_profiles(users: Collection[int]) -> None:
    """Rebuild the profiles of the people with these primary keys, in the caller's transaction."""
    for user in UserProfile.objects.locked().filter(pk__in=users).order_by("pk"):
        profile = profile_of(MemoryAtom.objects.holding().of_person(user).about_user(), user.zone)
        if (user.summary, user.interests, user.preferred_topics) != profile:
            user.summary, user.interests, user.preferred_topics = profile
            user.save(update_fields=[*DERIVED, "updated_at"])


def profile_of(statements: MemoryAtomQuerySet, zone: tzinfo) -> Profile:
    both = (statements.of_profile().newest_first(), statements.in_profile())
    return derived([Said(*row) for rows in both for row in rows.values_list(*Said._fields)[:READ]], zone)


def derived(said: Sequence[Said], zone: tzinfo) -> Profile:
    """Derive a profile from statements.

    Args:
        said: texts that were written into the profile, and statements in the order of `in_profile`.
    """
    own = [one for one in said if one.attribute not in WRITTEN]
    opening = [one.content for one in said if one.attribute == SUMMARY]
    return Profile(
        "\n".join([*opening, *_lines(own, zone)]),
        _phrases(said, INTEREST, _interests(own)),
        _phrases(said, TOPIC, _topics(own)),
    )


def _phrases(said: Iterable[Said], attribute: str, read: Sequence[str]) -> list[str]:
    """Return the phrases that were written into the profile, oldest first, followed by as many derived ones as fit."""
    written = sorted((one for one in said if one.attribute == attribute), key=lambda one: one.formed_at)
    values = [one.value for one in reversed(written)][:PROFILE_LIST_MAX]
    return united(values[::-1], read[: PROFILE_LIST_MAX - len(values)])


def _lines(own: Sequence[Said], zone: tzinfo) -> list[str]:
    """Return as many statements as fit: pinned ones first, then the others under their headings."""
    room = PROFILE_MAX
    pinned: list[str] = []
    pages: dict[str, list[str]] = {kind: [] for kind in HEADINGS}
    for one in _once(own):
        page = pinned if one.is_pinned else pages.get(one.kind)
        if page is None or (page is not pinned and len(page) == LINES):
            continue
        line = one.content if one.is_pinned else f"- {one.content} ({one.formed_at.astimezone(zone):%Y-%m-%d})"
        heading = "" if page or one.is_pinned else HEADINGS[_KIND(one.kind)]
        if (size := len(line) + len(heading) + 2) <= room:
            page.append(line)
            room -= size
    return [*pinned, *(line for kind, page in pages.items() if page for line in (HEADINGS[_KIND(kind)], *page))]


def _once(own: Sequence[Said]) -> Iterator[Said]:
    """Yield the statements, except repetitions and old plans."""
    newest = max((one.formed_at for one in own), default=None)
    told: set[str] = set()
    for one in own:
        is_stale = one.kind in (_KIND.PLAN, _KIND.TASK) and newest and one.formed_at < newest - STALE
        text = undated_words(without_speaker(one.content))
        if text not in told and (one.is_pinned or not is_stale):
            told.add(text)
            yield one


def _interests(own: Iterable[Said]) -> list[str]:
    """Return activities that the person says they like or mentions repeatedly."""
    counts = Counter[str]()
    for one in own:
        if not _DISLIKES.search(one.content):
            named = [word for word in words(one.content) if word in word_set("activities")]
            counts.update(dict.fromkeys(named, RECURRING if _LIKES.search(one.content) else 1))
    return [text for text, count in counts.most_common() if count >= RECURRING][:INTERESTS]


def _topics(own: Iterable[Said]) -> list[str]:
    """Return the topics that several statements mention: lowercase words that are not common in any language."""
    counts, said = Counter[str](), dict[str, str]()
    for one in own:
        named = {stem(word): word for word in _WORD.findall(without_speaker(one.content)) if word.islower()}
        counts.update(named.keys())
        said = named | said
    found = [said[word] for word, count in counts.most_common() if count >= OFTEN]
    return [word for word in found if not (word in common_words() or _LIKES.search(word))][:TOPICS]
