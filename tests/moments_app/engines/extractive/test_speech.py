"""Asides, greetings, interjections and reactions."""

import pytest

from moments_app.engines.extractive.speech import (
    clauses,
    is_reaction,
    nicknames,
    without_asides,
    without_idle_parts,
    without_openers,
)

CALLED = nicknames(["Melissa", "Bo Lund"])

OPENED = {
    "Hey Mel!": "",
    "Thanks, Melissa! I sold the boat.": "I sold the boat.",
    "Wow, that's great, Mel!": "That's great!",
    "Yeah, I painted it.": "I painted it.",
    "I painted it, Bo.": "I painted it.",
    "Oh no! Sorry, Mel — the kiln broke.": "The kiln broke.",
    "And then we left.": "Then we left.",
    "No emojis, please.": "No emojis, please.",
    "No, I never smoked.": "I never smoked.",
    "So many people came.": "So many people came.",
    "So I quit.": "I quit.",
    "Since we last talked, I quit.": "I quit.",
    "Since we talked, I quit.": "I quit.",
    "Since we chatted last, I quit.": "I quit.",
    "Hi Claude, since we last chatted": "",
    "I wanted to let you know that I quit.": "I quit.",
    "Hi Claude, I quit.": "I quit.",
    "Hey Paris is lovely.": "Hey Paris is lovely.",
    "Mellow colors are best.": "Mellow colors are best.",
}


@pytest.mark.parametrize("said", OPENED)
def test_what_only_passes_the_time_before_a_statement_goes(said: str) -> None:
    assert without_openers(said, CALLED) == OPENED[said]


@pytest.mark.parametrize(
    "said",
    [
        "That sounds great!",
        "I'm so proud of you.",
        "You sound like my mother.",
        "No worries!",
        "Kudos to you.",
        "Long time no see!",
        "Take care.",
    ],
)
def test_a_reaction_is_told_from_a_statement(said: str) -> None:
    assert is_reaction(said)
    assert not is_reaction("I sold the boat.") and not is_reaction("Keepsakes fill the shelf.")


def test_what_was_shared_is_no_part_of_what_was_said() -> None:
    assert without_asides("The kiln broke. [shares a photo of a snowman] 🎉").strip() == "The kiln broke."


def test_a_picture_between_two_sentences_divides_them() -> None:
    assert without_asides("Inspiring 💪 I sold the boat 🎉 yesterday.") == "Inspiring. I sold the boat   yesterday."


def test_parts_that_only_judge_go_and_denials_stay() -> None:
    assert without_idle_parts("I joined a choir, which is pretty exciting!") == "I joined a choir"
    assert without_idle_parts("I joined a choir and it was so wonderful.") == "I joined a choir"
    assert (
        without_idle_parts("I did not join a choir, and I never will.") == "I did not join a choir, and I never will."
    )


def test_a_sentence_is_divided_where_another_statement_begins() -> None:
    assert clauses("I sold the old boat, and I bought a new kayak.") == ["I sold the old boat", "I bought a new kayak."]
    for whole in (
        "If it rains I stay, and I read a book.",
        'She said "well, I sold it, and I left".',
        "I came, I saw.",
    ):
        assert clauses(whole) == [whole]
