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
from moments_app.engines.words import undated_words, without_speaker, word_set
from moments_app.models import MemoryAtom
from moments_app.models.atom import INTEREST, SUMMARY, TOPIC, WRITTEN_ATTRIBUTES, MemoryAtomQuerySet
from sessions_app.models import UserProfile
from sessions_app.models.user_profile import DERIVED, PROFILE_LIST_MAX, merge_lists

READ = 300  # maximum statements for a profile, besides those written into it
PROFILE_MAX = 2_000  # maximum characters after the introductory text
MAX_LINES = 8  # maximum statements per heading
PLAN_MAX_AGE = timedelta(days=120)  # maximum age of plans and tasks; older ones are probably done or given up
MAX_INTERESTS = 10  # maximum interests that are derived from statements
MAX_TOPICS = 5  # maximum topics that are derived from statements
MIN_INTEREST_MENTIONS = 2  # minimum statements that mention an interest
MIN_TOPIC_MENTIONS = 3  # minimum statements that mention a topic
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
    for user in UserProfile.objects.locked().filter(pk__in=users).order_by("pk"):
        profile = profile_of(MemoryAtom.objects.current().of_person(user).about_user(), user.zone)
        if (user.summary, user.interests, user.preferred_topics) != profile:
            user.summary, user.interests, user.preferred_topics = profile
            user.save(update_fields=[*DERIVED, "updated_at"])


def profile_of(statements: MemoryAtomQuerySet, zone: tzinfo) -> Profile:
    parts = (statements.of_profile().newest_first(), statements.in_profile())
    return derived([Said(*row) for rows in parts for row in rows.values_list(*Said._fields)[:READ]], zone)


def derived(statements: Sequence[Said], zone: tzinfo) -> Profile:
    """Derive a profile from texts that were written into it, and from statements in the order of `in_profile`."""
    own = [statement for statement in statements if statement.attribute not in WRITTEN_ATTRIBUTES]
    opening = [statement.content for statement in statements if statement.attribute == SUMMARY]
    return Profile(
        "\n".join([*opening, *_lines(own, zone)]),
        _phrases(statements, INTEREST, _interests(own)),
        _phrases(statements, TOPIC, _topics(own)),
    )


def _phrases(statements: Iterable[Said], attribute: str, derived_values: Sequence[str]) -> list[str]:
    """Return the phrases that were written into the profile, oldest first, followed by as many derived ones as fit."""
    written = sorted((one for one in statements if one.attribute == attribute), key=lambda one: one.formed_at)
    values = [one.value for one in reversed(written)][:PROFILE_LIST_MAX]
    return merge_lists(values[::-1], derived_values[: PROFILE_LIST_MAX - len(values)])


def _lines(statements: Sequence[Said], zone: tzinfo) -> list[str]:
    """Return as many statements as fit: pinned ones first, then the others under their headings."""
    room = PROFILE_MAX
    pinned: list[str] = []
    sections: dict[str, list[str]] = {kind: [] for kind in HEADINGS}
    for item in _without_repetitions(statements):
        section = pinned if item.is_pinned else sections.get(item.kind)
        if section is None or (section is not pinned and len(section) == MAX_LINES):
            continue
        line = item.content if item.is_pinned else f"- {item.content} ({item.formed_at.astimezone(zone):%Y-%m-%d})"
        heading = "" if section or item.is_pinned else HEADINGS[_KIND(item.kind)]
        if (size := len(line) + len(heading) + 2) <= room:
            section.append(line)
            room -= size
    listed = [(HEADINGS[_KIND(kind)], *section) for kind, section in sections.items() if section]
    return [*pinned, *(line for section in listed for line in section)]


def _without_repetitions(statements: Sequence[Said]) -> Iterator[Said]:
    """Yield the statements, except repetitions and old plans."""
    newest = max((statement.formed_at for statement in statements), default=None)
    seen: set[str] = set()
    for statement in statements:
        is_stale = statement.kind in (_KIND.PLAN, _KIND.TASK) and newest and statement.formed_at < newest - PLAN_MAX_AGE
        text = undated_words(without_speaker(statement.content))
        if text not in seen and (statement.is_pinned or not is_stale):
            seen.add(text)
            yield statement


def _interests(statements: Iterable[Said]) -> list[str]:
    counts = Counter[str]()
    for statement in statements:
        if not _DISLIKES.search(statement.content):
            named = [word for word in words(statement.content) if word in word_set("activities")]
            counts.update(dict.fromkeys(named, MIN_INTEREST_MENTIONS if _LIKES.search(statement.content) else 1))
    return [text for text, count in counts.most_common() if count >= MIN_INTEREST_MENTIONS][:MAX_INTERESTS]


def _topics(statements: Iterable[Said]) -> list[str]:
    """Return the topics that several statements mention: lowercase words that are not common in any language."""
    counts, words_by_stem = Counter[str](), dict[str, str]()
    for statement in statements:
        named = {stem(word): word for word in _WORD.findall(without_speaker(statement.content)) if word.islower()}
        counts.update(named.keys())
        words_by_stem = named | words_by_stem
    found = [words_by_stem[word] for word, count in counts.most_common() if count >= MIN_TOPIC_MENTIONS]
    return [word for word in found if not (word in common_words() or _LIKES.search(word))][:MAX_TOPICS]
