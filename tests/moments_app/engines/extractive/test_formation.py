"""The sentences that the engine keeps of a conversation, word for word."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moments_app.engines.calls.formation import FormationRequest, StreamSection
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.extractive.sentences import quotes_of
from moments_app.engines.transcript import Turn

WORDS = 50  # maximum of an item
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
    """Return the observations and facts of each section."""
    answer = ExtractiveEngine().form_memories(FormationRequest(turns, sections, ""))
    return [
        ([item["text"] for item in entry["observations"]], [item["text"] for item in entry["facts"]])
        for entry in answer.streams
    ]


def formed(talk: Sequence[tuple[str, str]], *sections: StreamSection) -> list[tuple[list[str], list[str]]]:
    return formed_of(turns_of(talk), *sections)


def kept(*said: str) -> list[str]:
    """Return what any stream keeps of a person's messages."""
    both = formed([("user", text) for text in said], SESSION, USER)
    return [text.removeprefix("User: ") for observations, facts in both for text in [*observations, *facts]]


def test_statements_are_quoted_with_speaker_and_date() -> None:
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
        'I am allergic to nuts and I love the song "My Way".',
        "Ich wohne in Bonn und mag das Lied „Mein Herz brennt“.",
        "J'habite à Lyon et j'adore « Mon oncle ».",
        "我住在上海，最喜欢的歌是“我的祖国”。",
    ],
)
def test_sentences_are_quoted_unchanged(said: str) -> None:
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
        'My neighbour told me: "I live in Cardiff. I am a dentist. I love it."',
        "Meine Nachbarin hat zu mir gesagt: „Ich wohne in Erfurt und bin Zahnärztin.“",
        "Mi vecina me dijo: «Vivo en Badajoz y soy dentista».",
        "Ma voisine m'a dit : « J'habite à Limoges et je suis dentiste. »",
        "邻居跟我说：“我住在洛阳。我是个牙医。”",
        "她说：『我住在天津。』",
        "她说“我住在天津”。",
        "“我住在洛阳，”她说。",
        "“我住在洛阳。”她说。",
        '"Vivo en Badajoz" —dijo mi vecina.',
        'Sie erzählte: „ich wohne in Gera und bin Koch."',
        "Sie sagte: ‚Ich wohne in Gera und bin Koch.‘",
        "En el cuento soy médico y vivo en Lugo.",
        "Dans mon rêve, je suis boulanger et j'habite à Lyon.",
        "游戏里我是护士。",
        "В сказке я врач и живу в Твери.",
        "»Ich wohne in Gera«, sagte sie.",
        "Im Rollenspiel bin ich Bäcker und lebe in Eisenfurt.",
        "Соседка сказала: «Живу в Рязани, работаю врачом».",
        "My friend Bo says I should quit my job at the bakery.",
        "You should never use butter for pancakes.",
        "Never bet on a pair of twos.",
        "It was great.",
        "He moved to Bergen.",
        "That sounds great!",
        "Their names are Salt and Pepper.",
    ],
)
def test_hypothetical_advising_and_dependent_sentences_are_omitted(said: str) -> None:
    assert kept(said) == []


def test_a_short_session_is_kept_completely() -> None:
    said = ["My daughter Mia is six.", "I got divorced in May.", "I'm allergic to hazelnuts.", "My son hates carrots."]
    talk = [turn for text in said for turn in (("user", text), ("assistant", "Thank you for telling me!"))]
    [(observations, facts)] = formed(talk, USER)
    assert sorted(observations + facts) == sorted(f"User: {text}" for text in said)


def test_statements_of_the_assistant_are_not_about_the_person() -> None:
    talk = [("user", "I'm allergic to nuts."), ("assistant", "My advice: I always carry an EpiPen in my red bag.")]
    assert formed(talk, SESSION, USER) == [([], []), (["User: I'm allergic to nuts."], [])]


def test_the_same_turns_give_the_same_sentences_in_any_batches() -> None:
    talk = [*TALK, *[("user", f"Ada: My cousin Ida{n} moved to street number {n} of Turin.") for n in range(30)]]
    turns = turns_of(talk)
    whole = formed_of(turns, SESSION, USER)
    for size in (2, 7, 12):
        parts = [formed_of(turns[start : start + size], SESSION, USER) for start in range(0, len(turns), size)]
        joined = [
            tuple([text for part in parts for text in part[section][kind]] for kind in (0, 1)) for section in (0, 1)
        ]
        assert joined == whole


def test_a_name_from_the_application_is_the_speaker() -> None:
    turns = [replace(turns_of([("user", "I adopted a puppy called Biscuit.")])[0], name="Ada")]
    assert formed_of(turns, USER) == [([], ["Ada: I adopted a puppy called Biscuit."])]


def test_single_valued_statements_are_facts_and_their_parts_end_separately() -> None:
    said = "I live in Oslo with my wife Ann, and I work as a nurse at Haukeland Hospital."
    assert formed([("user", said)], USER) == [
        ([], ["User: I live in Oslo with my wife Ann.", "User: I work as a nurse at Haukeland Hospital."])
    ]
    assert formed([("user", "My name is Pia Lund and I'm 41.")], USER) == [
        ([], ["User: My name is Pia Lund.", "User: I'm 41."])
    ]
    assert quotes_of("Hi there, I'm Pia and I live in Leeds.") == ["Hi there, I'm Pia.", "I live in Leeds."]
    assert quotes_of("我叫郑浩，在苏州生活，我学习物理。") == ["我叫郑浩。", "我 … 在苏州生活，我学习物理。"]
    assert quotes_of("Ich heiße Till und wohne in Leipzig.") == ["Ich heiße Till.", "Ich … wohne in Leipzig."]
    assert quotes_of("I'm Nora, I make ceramics, and I keep bees.") == ["I'm Nora, I make ceramics, and I keep bees."]


def test_a_sentence_with_very_many_pieces_is_not_split() -> None:
    assert len(quotes_of("I live in Oslo, I work as a nurse, " * 10 + "I am here.")) > 1
    sentence = "I live in Oslo, I work as a nurse, " * 500
    assert quotes_of(sentence) == [sentence]


@pytest.mark.parametrize("said", ["I keep bees.", "We own three goats.", "I don't eat pork."])
def test_animals_and_diets_are_lasting(said: str) -> None:
    assert formed([("user", said)], USER) == [([f"User: {said}"], [])]


def test_general_statements_are_about_nobody() -> None:
    said = ["Our kids are our future and our whole world."]
    assert formed([("user", text) for text in said], USER) == [([], [])]
    own = "Our kids painted our kitchen green."
    assert formed([("user", own)], USER) == [([f"User: {own}"], [])]


def test_word_limits_apply_and_a_long_sentence_is_a_fact() -> None:
    long = "I am allergic to hazelnuts, " + "and to many other things " * 6 + "as well."
    assert formed([("user", long)], USER) == [([], [f"User: {long}"])]
    assert formed([("user", long)], replace(USER, fact_words=20)) == [([], [])]
    assert formed([("user", "I am allergic to hazelnuts.")], replace(USER, observation_words=0)) == [
        ([], ["User: I am allergic to hazelnuts."])
    ]


def test_a_shard_gets_what_its_prompt_names_but_no_personal_statements() -> None:
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
