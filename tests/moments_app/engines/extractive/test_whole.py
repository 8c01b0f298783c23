"""What is kept by itself: whole statements."""

import pytest

from moments_app.engines.extractive.whole import completed, is_whole

WHOLE = (
    "My daughter, Mia, is six.",
    "My friends, family and mentors are my rocks.",
    "In May we went to Rome, our first trip.",
    "Best of all, my kids are fine.",
    "A kiln element lasts about 150 firings.",
    "The pots cool in twelve hours.",
    "I cherish time with family.",
    "I couldn't sleep.",
    "I'd love to see Rome.",
    "I'd been to Rome before.",
    "We sign at two.",
    "My son turned ten.",
    "My brother called, and I talked to him.",
    "My boss said yes to the plan.",
    "My friends and family support me.",
    "Even when I was young, I sang.",
    "I'm learning Italian.",
    "I'm going to open a shop in April.",
    "I'm at home with numbers.",
    "My dog hides his bone when it rains.",
)
NOT_WHOLE = {
    "a fragment": ("E03, and the display stayed on.", "Three months with an app.", "Twenty handles, 560 kronor."),
    "a clause without a main one": ("Almost as silly as when I fed a horse.", "Until the summer break, 11 June."),
    "a gerund without its verb": ("Learning commands and house training.", "Recently, reform and development."),
    "a list": ("Radio, the paper, my mother, Iris, and Bo because of the sign.", "I looked: 410 kronor."),
    "a reaction": ("Excited for this new chapter.", "Such a special moment.", "Noted: Wednesday to Saturday."),
    "without its noun": (
        "My mother alone buys for two.",
        "I'm looking at some to help others.",
        "The last is at 20:21.",
        "I've been one since I lost my job.",
    ),
    "about what was named before": ("I want to let them know.", "I ordered last night, it comes on Friday."),
    "of the moment": (
        "We're at 300 degrees and climbing.",
        "I'm going to throw bowls now, six of them.",
        "I'm making dinner for my kids right now.",
        "I'm off to bake some cakes.",
        "I was just thinking of my sister.",
    ),
    "leaning": ("Then 150,000 is plenty.", "I talked to him afterwards.", "My kids have so much and others don't."),
    "supposed": ("If it rains, I stay.", "I could use a second head.", "Maybe my sister comes."),
    "said by others": ("My friend Iris says I should ask 260.", "The teacher thought my son was asleep."),
}


@pytest.mark.parametrize("text", WHOLE)
def test_a_whole_statement_is_one(text: str) -> None:
    assert is_whole(text)


@pytest.mark.parametrize("kind", NOT_WHOLE)
def test_what_is_only_a_part_or_leans_or_is_not_so_is_none(kind: str) -> None:
    assert [text for text in NOT_WHOLE[kind] if is_whole(text)] == []


def test_a_verb_left_out_is_put_in_and_what_is_asked_for_or_said_twice_is_left_out() -> None:
    assert completed("Oscar, my guinea pig.") == "My guinea pig is called Oscar."
    assert completed("Otherwise my mother, she lives in Lund.") == "My mother lives in Lund."
    assert completed("The train goes at 6:02, wish me luck!") == "The train goes at 6:02"
    assert completed("My mother, Iris, lives in Lund.") == "My mother, Iris, lives in Lund."


@pytest.mark.parametrize("text", ["My manager is Tom, he left in July.", "My brother married Mia, she is a nurse."])
def test_a_subject_behind_another_statement_is_said_once_and_stays(text: str) -> None:
    assert completed(text) == text
