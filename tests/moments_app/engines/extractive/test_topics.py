"""Topics: what a person comes back to."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from moments_app.engines.calls.moments import KnownMoment
from moments_app.engines.calls.profile import Profile
from moments_app.engines.extractive.phrases import new_topics
from moments_app.engines.extractive.sentences import read
from moments_app.engines.transcript import Turn

MARCH = datetime(2026, 3, 4, 8, tzinfo=UTC)
SMALL_TALK = ("It rained.", "I slept well.", "We ate late.", "I walked home.")


def topics(*said: str, known: Sequence[str] = (), before: Sequence[str] = ()) -> list[str]:
    turns = [Turn(n, "user", text, MARCH + timedelta(minutes=n)) for n, text in enumerate(said)]
    moments = [KnownMoment(f"m-{n}", text, MARCH, MARCH) for n, text in enumerate(before)]
    return new_topics(Profile("", (), known), moments, read(turns))


def test_a_topic_is_named_again_and_again_and_no_prop_person_or_quantity_is_one() -> None:
    said = (
        "My kiln broke.",
        "I set the ladder beside the shelf. The ladder shook.",
        "The ladder was too short, so Mats held the ladder.",
        "I put the ladder away.",
        *SMALL_TALK,
        "My brother Mats looked at the kiln for 300 degrees.",
        "I bought 40 screws from Mats, and 300 degrees it was.",
        *SMALL_TALK,
        "I sold 30 screws, but the kiln is mine.",
        "I have 12 screws. Mats got to 900 degrees.",
    )
    assert topics(*said) == ["kiln"]


def test_what_earlier_moments_were_about_needs_to_be_named_less_and_what_is_known_is_not_told_again() -> None:
    said = ("The choir sang on Friday.", "My choir needs a tenor.", *SMALL_TALK)
    told = ("User joined a choir.", "User's choir sang in Lund.")
    assert topics(*said) == []
    assert topics(*said, before=told) == ["choir"]
    assert topics(*said, before=told, known=["Choir practice"]) == []
