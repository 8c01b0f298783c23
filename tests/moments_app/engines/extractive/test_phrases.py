"""Phrases that name a subject."""

import pytest

from moments_app.engines.extractive.phrases import subjects

NAMED = {
    "I want to create a safe place.": [],
    "I was throwing on some music.": ["music"],
    "My pottery class is so cute.": ["pottery class"],
    "I joined a support group in Oslo.": ["support group", "oslo"],
    "I love painting and hiking.": ["painting", "hiking"],
    "We walk the dogs, and the walk is long.": ["dogs", "walk"],
    "I've seen 've and 'll.": [],
    "The response was heartwarming and I was so optimistic.": ["response"],
    "My neighbors are friends.": ["neighbors", "friends"],
    "Henrik uses a strong epoxy, and my knee bends forty degrees.": ["henrik", "epoxy", "knee bends", "degrees"],
    "I love running my studio, and all dances.": ["studio", "dances"],
}


@pytest.mark.parametrize("said", NAMED)
def test_subjects_are_runs_of_nouns(said: str) -> None:
    assert [subject.text for subject in subjects(said, "en")] == NAMED[said]


def test_in_an_unknown_language_there_is_none() -> None:
    assert subjects("Ninapenda kupika chakula cha jioni", "") == ()
    assert subjects("昨天晚上窑坏了", "") == ()
