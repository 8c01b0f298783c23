"""What a retraction does to the interests and topics of a profile whose turns are known.

Those that a retracted turn says go. Those that other turns say, and none of these, stay where the profile is set back.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from moments_app.engines.calls.profile import Profile
from moments_app.models import ProfilePhrase
from sessions_app.models import Message, UserProfile
from sessions_app.models.user_profile import united

Named = Collection[tuple[str, str]]


def phrases_on(user: UserProfile, turns: Sequence[int]) -> list[ProfilePhrase]:
    """Return the phrases that some turns say, given by their primary keys."""
    return list(ProfilePhrase.objects.for_user(user).filter(source_message_ids__overlap=turns).order_by("pk"))


def with_phrases(base: Profile, user: UserProfile, gone: Iterable[ProfilePhrase]) -> Profile:
    """Return an earlier state of a profile with those phrases of today that turns say which are all believed."""
    # An import leaves those without turns whose turns it did not have.
    known = ProfilePhrase.objects.for_user(user).exclude(source_message_ids=[])
    rows = list(known.exclude(pk__in=[row.pk for row in gone]))
    sources = {pk for row in rows for pk in row.source_message_ids}
    there = set(Message.objects.said().believed().filter(user=user, pk__in=sources).values_list("pk", flat=True))
    named = {row.named for row in rows if there.issuperset(row.source_message_ids)} - {row.named for row in gone}
    return replace(
        base,
        interests=united(base.interests, _among(user.interests, ProfilePhrase.Kind.INTEREST, named)),
        preferred_topics=united(base.preferred_topics, _among(user.preferred_topics, ProfilePhrase.Kind.TOPIC, named)),
    )


def without_phrases(profile: Profile, gone: Iterable[ProfilePhrase]) -> Profile:
    """Return a profile without some phrases."""
    named, kind = {row.named for row in gone}, ProfilePhrase.Kind
    return replace(
        profile,
        interests=[text for text in profile.interests if (kind.INTEREST, text.casefold()) not in named],
        preferred_topics=[text for text in profile.preferred_topics if (kind.TOPIC, text.casefold()) not in named],
    )


def _among(texts: Iterable[str], kind: str, named: Named) -> list[str]:
    return [text for text in texts if (kind, text.casefold()) in named]
