"""Other languages: it says less rather than nonsense."""

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.languages import Language, read_languages
from moments_app.engines.calls.formation import FormationRequest, Limits, StreamSection
from moments_app.engines.calls.moments import Journey, MomentRequest
from moments_app.engines.calls.profile import Profile
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.transcript import Turn

LANGUAGES = {one.language: one for one in read_languages() if one.language != "en"}
READ = ("ar", "de", "es", "fr", "hi", "ja", "ko", "nl", "pl", "pt", "ru", "sv", "tr", "zh")
UNKNOWN = ("th",)


def turns_of(language: Language) -> list[Turn]:
    at = datetime(2026, 3, 4, 8, tzinfo=UTC)
    return [
        Turn(n, "assistant" if "talk" in name else "user", text, at + timedelta(minutes=n))
        for n, (name, text) in enumerate(language.turns())
    ]


@pytest.mark.parametrize("code", LANGUAGES)
def test_what_is_kept_was_said_and_is_no_small_talk(code: str) -> None:
    language = LANGUAGES[code]
    turns = turns_of(language)
    sections = [
        StreamSection("session", "", None, Limits(0, 5, 50), ""),
        StreamSection("user", "", Limits(0, 5, 50), None, ""),
    ]
    entries = ExtractiveEngine().form_memories(FormationRequest(turns, sections, "")).streams
    kept = [item["text"].removeprefix("User: ") for entry in entries for item in entry["facts"] + entry["observations"]]
    assert all(any(text in statement for statement in language.statements) for text in kept)
    assert kept or code == "th"  # no words are told apart in its script


@pytest.mark.parametrize("code", LANGUAGES)
def test_nothing_is_said_of_feelings_interests_or_subjects_that_are_not_known(code: str) -> None:
    language = LANGUAGES[code]
    built = ExtractiveEngine().build_moments(MomentRequest(turns_of(language), Profile(), Journey(), ""))
    small_talk = " ".join(language.small_talk).lower()
    assert built.new_interests == []
    for moment in built.moments:
        assert moment.emotion_tags == []
        assert not any(tag in small_talk for tag in moment.topic_tags)
        assert moment.name.startswith("conversation-2026-03-04") or code == "de"
    if code in UNKNOWN:
        assert built.user_summary_update == ""
    assert ("In their own words:" in built.user_summary_update) == (code in READ)
