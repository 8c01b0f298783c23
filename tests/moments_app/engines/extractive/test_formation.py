"""What is kept of a conversation, word for word."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moments_app.engines.calls.formation import FormationRequest, StreamSection
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.extractive.sentences import quotes_of
from moments_app.engines.transcript import Turn

WORDS = 50  # of an item
SESSION = StreamSection("session", "", 0, WORDS, "")
USER = StreamSection("user", "", 25, WORDS, "")
TALK = [
    ("user", "Ada: Hey Bo! Long time no see!"),
    ("assistant", "Bo: Haha, that must've been hilarious! [shares a photo of a photo of a street with people]"),
    ("user", "Ada: I 100% agree, Bo. We adopted another puppy called Biscuit yesterday, it was so cute!"),
    ("assistant", "Bo: Wow, that's awesome, Ada! You're the best. I start at the harbor office next Monday."),
    ("user", "Ada: No worries! Their names are Salt, Pepper and Biscuit."),
    ("assistant", "Bo: Sounds lovely. Keep me posted!"),
]


def turns_of(talk: Sequence[tuple[str, str]]) -> list[Turn]:
    at = datetime(2026, 3, 4, 8, tzinfo=UTC)
    return [Turn(n, role, text, at + timedelta(minutes=n)) for n, (role, text) in enumerate(talk)]


def formed_of(turns: Sequence[Turn], *sections: StreamSection) -> list[tuple[list[str], list[str]]]:
    """The observations and the facts of each section."""
    answer = ExtractiveEngine().form_memories(FormationRequest(turns, sections, ""))
    return [
        ([item["text"] for item in entry["observations"]], [item["text"] for item in entry["facts"]])
        for entry in answer.streams
    ]


def formed(talk: Sequence[tuple[str, str]], *sections: StreamSection) -> list[tuple[list[str], list[str]]]:
    return formed_of(turns_of(talk), *sections)


def kept(*said: str) -> list[str]:
    """What is kept of what a person says, whichever stream takes it."""
    both = formed([("user", text) for text in said], SESSION, USER)
    return [text.removeprefix("User: ") for observations, facts in both for text in [*observations, *facts]]


def test_statements_are_kept_as_they_were_said_with_their_speaker_and_their_dates() -> None:
    session, user = formed(TALK, SESSION, USER)
    assert session == ([], ["Bo: I start at the harbor office next Monday [9 March 2026]."])
    assert user == (
        [
            "Ada: We adopted another puppy called Biscuit yesterday [3 March 2026], it was so cute!",
        ],
        [],
    )


@pytest.mark.parametrize(
    "said",
    [
        "My name is Nora and I keep bees.",
        "Actually I prefer oolong to coffee.",
        "I make ceramics in Gothenburg and I'd been a nurse before.",
        "The shop opens in May at Kungsgatan.",
        "Always answer in bullet points.",
    ],
)
def test_a_sentence_is_kept_as_it_was_said(said: str) -> None:
    assert kept(said) == [said]


@pytest.mark.parametrize(
    "said",
    [
        "I dreamed I moved to Cairo.",
        "Pretend I live on Mars.",
        "I wish I lived in Paris.",
        "If I lived in Rome, I would eat pizza every day.",
        "Do I live in Berlin?",
        'My brother said "I live in Detroit and hate it".',
        "My friend Bo says I should quit my job at the bakery.",
        "You should never use butter for pancakes.",
        "Never bet on a pair of twos.",
        "It was great.",
        "He moved to Bergen.",
        "That sounds great!",
        "Their names are Salt and Pepper.",
    ],
)
def test_what_is_unreal_or_advice_or_leans_on_another_sentence_is_not_kept(said: str) -> None:
    assert kept(said) == []


def test_nothing_is_left_out_of_a_short_session() -> None:
    said = ["My daughter Mia is six.", "I got divorced in May.", "I'm allergic to hazelnuts.", "My son hates carrots."]
    talk = [turn for text in said for turn in (("user", text), ("assistant", "Thank you for telling me!"))]
    [(observations, facts)] = formed(talk, USER)
    assert sorted(observations + facts) == sorted(f"User: {text}" for text in said)


def test_what_the_assistant_says_is_nothing_of_the_person() -> None:
    talk = [("user", "I'm allergic to nuts."), ("assistant", "My advice: I always carry an EpiPen in my red bag.")]
    assert formed(talk, SESSION, USER) == [([], []), (["User: I'm allergic to nuts."], [])]


def test_the_same_turns_give_the_same_sentences_however_they_are_batched() -> None:
    talk = [*TALK, *[("user", f"Ada: My cousin Ida{n} moved to street number {n} of Turin.") for n in range(30)]]
    turns = turns_of(talk)
    whole = formed_of(turns, SESSION, USER)
    for size in (2, 7, 12):
        parts = [formed_of(turns[start : start + size], SESSION, USER) for start in range(0, len(turns), size)]
        joined = [
            tuple([text for part in parts for text in part[section][kind]] for kind in (0, 1)) for section in (0, 1)
        ]
        assert joined == whole


def test_a_name_that_the_application_gives_says_who_speaks() -> None:
    turns = [replace(turns_of([("user", "I adopted a puppy called Biscuit.")])[0], name="Ada")]
    assert formed_of(turns, USER) == [([], ["Ada: I adopted a puppy called Biscuit."])]


def test_what_has_one_value_at_a_time_is_a_fact_and_parts_with_values_of_their_own_can_end_alone() -> None:
    said = "I live in Oslo with my wife Ann, and I work as a nurse at Haukeland Hospital."
    assert formed([("user", said)], USER) == [
        ([], ["User: I live in Oslo with my wife Ann", "User: I work as a nurse at Haukeland Hospital."])
    ]
    assert quotes_of("Hi there, I'm Pia and I live in Leeds.") == ["Hi there, I'm Pia", "I live in Leeds."]
    assert quotes_of("我叫郑浩，在苏州生活，我学习物理。") == ["我叫郑浩", "我 … 在苏州生活，我学习物理。"]
    assert quotes_of("Ich heiße Till und wohne in Leipzig.") == ["Ich heiße Till", "Ich … wohne in Leipzig."]
    assert quotes_of("I'm Nora, I make ceramics, and I keep bees.") == ["I'm Nora, I make ceramics, and I keep bees."]


def test_what_is_said_of_everybody_is_nobodys() -> None:
    said = ["Our kids are our future and our whole world."]
    assert formed([("user", text) for text in said], USER) == [([], [])]
    own = "Our kids painted our kitchen green."
    assert formed([("user", own)], USER) == [([f"User: {own}"], [])]


def test_limits_of_words_are_kept_and_a_long_sentence_is_a_fact() -> None:
    long = "I am allergic to hazelnuts, " + "and to many other things " * 6 + "as well."
    assert formed([("user", long)], USER) == [([], [f"User: {long}"])]
    assert formed([("user", long)], replace(USER, fact_words=20)) == [([], [])]
    assert formed([("user", "I am allergic to hazelnuts.")], replace(USER, observation_words=0)) == [
        ([], ["User: I am allergic to hazelnuts."])
    ]


def test_a_shard_gets_what_its_prompt_names_but_nobodys_statement() -> None:
    prompt = "What is known of kilns, elements and firing schedules"
    talk = [
        ("assistant", "A kiln element lasts about 150 firings."),
        ("user", "My kiln element broke and my firing schedule is lost."),
        ("assistant", "The kiln and its elements cool in twelve hours."),
    ]
    [(observations, facts)] = formed(talk, StreamSection("shard kilns", prompt, 35, WORDS, ""))
    assert observations == [
        "Assistant: A kiln element lasts about 150 firings.",
        "Assistant: The kiln and its elements cool in twelve hours.",
    ]
    assert facts == []
