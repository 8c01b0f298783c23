"""The interests and topics of a person's profile, as far as it is known which turns say them."""

from collections.abc import Sequence
from dataclasses import dataclass

from moments_app.engines.calls.profile import Phrase
from moments_app.models import Job, ProfilePhrase
from sessions_app.models import Message, Session, UserProfile


@dataclass(frozen=True)
class Added:
    """The phrases that a build of a session's turns has added to a profile."""

    phrases: Sequence[Phrase]
    job: Job
    session: Session


def write_phrases(user: UserProfile, builds: Sequence[Added]) -> None:
    """Keep what builds added, in the caller's transaction, which holds the person; two statements, or none."""
    sources = _sources(user, builds)
    rows = [
        ProfilePhrase(
            user=user,
            kind=phrase.kind,
            text=phrase.text,
            source_message_ids=[sources[place] for place in _places(build, phrase) if place in sources],
            job=build.job,
        )
        for build in builds
        for phrase in build.phrases
    ]
    ProfilePhrase.objects.bulk_create([row for row in rows if row.source_message_ids])


def _places(build: Added, phrase: Phrase) -> list[tuple[int, int]]:
    return [(build.session.pk, sequence) for sequence in phrase.sources]


def _sources(user: UserProfile, builds: Sequence[Added]) -> dict[tuple[int, int], int]:
    """Return the primary keys of the turns that phrases name, by session and sequence."""
    places = [place for build in builds for phrase in build.phrases for place in _places(build, phrase)]
    if not places:
        return {}
    own = Message.objects.filter(user_id=user.pk, session__in={session for session, _sequence in places})
    turns = own.said_where(sequence__in={sequence for _session, sequence in places})
    return {(session, sequence): pk for session, sequence, pk in turns.values_list("session_id", "sequence", "pk")}
