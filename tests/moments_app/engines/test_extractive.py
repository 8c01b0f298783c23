"""The engine without a model."""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import FrameType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moments_app.engines.calls.formation import FormationRequest, StreamSection
from moments_app.engines.calls.moments import Journey, MomentAnswer, MomentRequest
from moments_app.engines.calls.texts import DigestRequest, SummaryRequest
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.extractive.language import language_of, sentences, stem, words
from moments_app.engines.extractive.sentences import read_window
from moments_app.engines.transcript import Turn

MONDAY = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
KILN = [
    ("user", "The kiln stopped at 900 degrees last night and I am worried about my shop opening."),
    ("assistant", "That sounds like a broken heating element. Did the controller show an error?"),
    ("user", "It showed E03. My brother Mats looked at it and the lower element is burnt through."),
    ("assistant", "A new element costs about 1,200 kronor. Order it before Friday and keep the old terminals."),
    ("user", "I ordered the element from Keramos today, it arrives on 6 March."),
    ("assistant", "Good. Fire a test load to cone 6 before you glaze anything for the shop."),
    ("user", "I will fire the test load on Saturday. I'm so relieved that the kiln can be saved."),
    ("assistant", "Write down the firing schedule of the kiln, the element will age again."),
]
ITALIAN = [
    ("user", "I am learning Italian for a trip to Bologna in May. How do I order coffee?"),
    ("assistant", "Say: un caffè, per favore. In Bologna you pay at the counter first."),
    ("user", "And the past tense of andare? My daughter Elin asks me every evening."),
    ("assistant", "Sono andata, with essere. Italian verbs of movement take essere in the past tense."),
    ("user", "I love the verbs of movement. I'm allergic to hazelnuts. How do I say that in Italian?"),
    ("assistant", "Sono allergica alle nocciole. In Bologna ask about nocciole in every dessert."),
    ("user", "Sono allergica alle nocciole. I will learn ten Italian phrases a week until May."),
    ("assistant", "Ten phrases a week make eighty before Bologna."),
]


def talk(*parts: Sequence[tuple[str, str]], pause: timedelta = timedelta(days=1)) -> list[Turn]:
    """Return turns a minute apart, with a pause between the parts."""
    turns: list[Turn] = []
    at = MONDAY
    for part in parts:
        for role, content in part:
            turns.append(Turn(len(turns), role, content, at))
            at += timedelta(minutes=1)
        at += pause
    return turns


def built(turns: Sequence[Turn]) -> MomentAnswer:
    return ExtractiveEngine().build_moments(MomentRequest(turns, Journey(), ""))


def ranges(answer: MomentAnswer) -> list[tuple[int, int]]:
    return [(moment.starts_at_message_idx, moment.ends_at_message_idx) for moment in answer.moments]


def test_a_long_pause_begins_a_new_moment() -> None:
    assert ranges(built(talk(KILN, ITALIAN))) == [(0, 7), (8, 15)]


def test_a_new_subject_begins_a_new_moment_without_a_pause() -> None:
    found = ranges(built(talk(KILN * 2, ITALIAN * 2, pause=timedelta(0))))
    assert len(found) == 2
    assert abs(found[1][0] - 16) <= 2


def test_a_few_turns_form_one_moment() -> None:
    assert ranges(built(talk(KILN[:3]))) == [(0, 2)]


def test_a_very_long_session_is_divided() -> None:
    turns = [Turn(n, "assistant" if n % 2 else "user", f"point {n} of the plan", MONDAY) for n in range(200)]
    assert all(end - start < 60 for start, end in ranges(built(turns)))


def test_a_moment_never_begins_with_a_tool_result() -> None:
    turns = [
        Turn(n, ("user", "assistant", "tool")[n % 3], f"subject {n // 7} " * 5, MONDAY + timedelta(hours=n * n))
        for n in range(60)
    ]
    assert all(turns[start].role != "tool" for start, _ in ranges(built(turns)))


def test_the_summary_names_the_subject_in_words_of_the_turns() -> None:
    kiln, italian = built(talk(KILN, ITALIAN)).moments
    assert "element" in kiln.summary
    assert "Bologna" in italian.summary or "Italian" in italian.summary
    said = {stem(word) for _, text in KILN for word in words(text)}
    dates = {"2", "march", "2026", "1"}
    assert {stem(word) for word in words(kiln.summary)} <= said | dates | {"user"}


def test_the_detail_lists_numbers_dates_and_plans_by_date() -> None:
    kiln, italian = built(talk(KILN, ITALIAN)).moments
    assert kiln.detail.startswith("[2026-03-02] ")
    assert italian.detail.startswith("[2026-03-03] ")
    for fact in ("E03", "1,200 kronor", "6 March"):
        assert fact in kiln.detail
    assert "nocciole" in italian.detail
    assert len(kiln.detail.split()) <= 300


def test_tags_persons_and_feelings_are_found() -> None:
    kiln, italian = built(talk(KILN, ITALIAN)).moments
    assert any("kiln" in tag or "element" in tag for tag in kiln.topic_tags)
    assert any("italian" in tag or "bologna" in tag for tag in italian.topic_tags)
    assert kiln.present_persons == ["Mats"]
    assert italian.present_persons == ["Elin"]
    assert set(kiln.emotion_tags) == {"worry", "relief"}
    assert "-" in kiln.name or kiln.name.isalpha()


def test_speakers_named_in_the_text_are_persons_instead_of_tags() -> None:
    named = [("user", f"Maria: {text}") if role == "user" else ("assistant", f"John: {text}") for role, text in KILN]
    [moment] = built(talk(named)).moments
    assert {"Maria", "John"} <= set(moment.present_persons)
    assert not any("maria" in tag or "john" in tag for tag in moment.topic_tags)
    assert "My brother Mats looked at it" in moment.summary
    assert moment.summary.startswith("Maria: ") and moment.summary.count("Maria: ") == 1


def test_words_before_an_s_are_not_persons() -> None:
    said = ["I see, Here's the map", "Yes, There's a lake", "Well, What's left is bread", "Maybe, That's Elin's boat"]
    [moment] = built(talk([("user", text) for text in said])).moments
    assert moment.present_persons == ["Elin"]


def test_a_moment_is_named_after_its_summary_instead_of_rare_words() -> None:
    said = [
        ("user", "No emojis please, the emojis are too small."),
        ("assistant", "Sure."),
        ("user", "My choir sang at the harbor festival in Lund yesterday."),
        ("assistant", "How many people of the choir sang?"),
        ("user", "Forty people of our choir, and my sister Iris played the organ."),
        ("user", "We were paid 900 kronor by the city of Lund last Friday."),
        ("user", "Emojis again, see?"),
    ]
    [moment] = built(talk(said)).moments
    assert moment.name.startswith("choir-") and "emoji" not in moment.name


def test_a_moment_is_named_after_statements_instead_of_general_words_and_questions() -> None:
    said = ("I live in Oslo with two cats.", "I could never live without music.", "How do I boil an egg?")
    [moment] = built(talk([("user", text) for text in said])).moments
    assert moment.name == "oslo-cats" and moment.topic_tags[:3] == ["oslo", "cats", "music"]


def test_a_lesson_is_an_instruction_and_not_a_report() -> None:
    said = ("Never saw this coming at all.", "Never put emojis in answers.", "Always answer in full sentences.")
    turns = talk([("user", text) for text in said])
    assert ExtractiveEngine().digest(DigestRequest(turns, "", 300, "")).lessons == list(said[1:])


ONE_TEXT = (
    "Please write an email about the broken roof.",
    "Please explain photosynthesis.",
    "Reply to the city in English.",
    "Translate the report into German.",
    "Please shorten this text.",
    "Tell me a story about the sea.",
    "Give me a short summary of the storm.",
    "Rewrite this email in a formal tone.",
    "Tell me three things about the harbor.",
)
ALL_ANSWERS = (
    "Please answer briefly and without emojis.",
    "Please keep answers under ten lines.",
    "Explain everything step by step.",
    "Use metric units in recipes.",
    "From now on write in plain words.",
    "Fix typos whenever there are any.",
    "From now on answer every question briefly.",
    "Please be concise and polite.",
)
WITH_INFORMATION = (
    "Please meet me in Paris on Sunday.",
    "Correct, the meeting moved to Friday.",
    "Draft beer is cheap at the harbor.",
    "Please note that my address is 5 High Street.",
    "Please write a poem for my wife Anna.",
    "Please remember that I'm allergic to nuts.",
)


def kept(*said: str) -> tuple[list[str], list[str]]:
    """Return the statements and the lessons of a user's turns."""
    turns = talk([("user", text) for text in said])
    [entry] = (
        ExtractiveEngine().form_memories(FormationRequest(turns, [StreamSection("user", "", 0, 50, "")], "")).streams
    )
    statements = [sentence.text for sentence in read_window(turns).sentences if sentence.can_be_kept]
    return statements, [lesson["text"] for lesson in entry["lessons"]]


def test_a_request_for_one_text_is_neither_a_statement_nor_a_lesson() -> None:
    assert kept(*ONE_TEXT) == ([], [])


def test_an_instruction_for_all_answers_is_a_lesson() -> None:
    assert kept(*ALL_ANSWERS) == (list(ALL_ANSWERS), list(ALL_ANSWERS))


def test_a_request_with_information_about_its_speaker_is_a_statement() -> None:
    assert kept(*WITH_INFORMATION) == (list(WITH_INFORMATION), [])


def test_moments_of_one_answer_have_different_names() -> None:
    names = [moment.name for moment in built(talk(KILN, ITALIAN, KILN)).moments]
    assert len(set(names)) == 3


def test_statements_of_the_assistant_are_not_the_persons() -> None:
    turns = talk([("assistant", "I am a large model and I love my job very much."), *KILN])
    [entry] = (
        ExtractiveEngine().form_memories(FormationRequest(turns, [StreamSection("user", "", 25, 50, "")], "")).streams
    )
    kept = [item["text"] for item in entry["facts"] + entry["observations"]]
    assert kept and not any("large model" in text for text in kept)


def test_the_same_turns_give_the_same_answer() -> None:
    turns = talk(KILN, ITALIAN, KILN)
    assert len({built(turns).model_dump_json() for _ in range(3)}) == 1


def test_moments_are_in_the_language_of_their_turns() -> None:
    german = [
        ("user", "Der Brennofen ist gestern bei 900 Grad ausgefallen und ich mache mir Sorgen."),
        ("assistant", "Vermutlich ist die untere Heizspirale des Brennofens durchgebrannt."),
        ("user", "Ich habe eine neue Heizspirale für den Brennofen bestellt, sie kommt am Freitag."),
    ]
    chinese = [("user", "昨天晚上窑坏了。我很担心商店的开业。"), ("assistant", "可能是加热元件坏了。请检查加热元件。")]
    assert "brennofen" in " ".join(built(talk(german)).moments[0].topic_tags)
    assert "窑" in built(talk(chinese)).moments[0].summary
    assert {language_of(text) for _, text in german} == {"de"}


HUGE = ["x" * 150_000, "word " * 30_000, "Eine Zeile.\n" * 12_000, "。" * 150_000, '{"a": [1, 2, 3]}' * 9_000]


@pytest.mark.parametrize("text", HUGE)
def test_row_7_a_turn_of_150_000_characters_takes_bounded_work(text: str) -> None:
    answer = built(talk([("user", text), ("tool", text), *KILN]))
    assert ranges(answer)[0][0] == 0
    assert len(sentences(text)) < 3_000


LONG: dict[str, Callable[[int], str]] = {
    "one sentence, repeated": lambda n: "I like the kiln. " * 40,
    "all sentences different": lambda n: " ".join(f"I like kiln {n}x{m} of street {n + m}." for m in range(25)),
    "no sentence": lambda n: "a) b) c) d) " * 80,
    "what opens sentences, in a row": lambda n: "oh yeah oh well oh yeah " * 12 + f"we left harbor {n}.",
    "one line without an end": lambda n: f"word{n} other{n} " * 60,
}
CALLS: dict[str, Callable[[Sequence[Turn]], object]] = {
    "moments": lambda turns: built(turns),
    "summary": lambda turns: ExtractiveEngine().roll_summary(SummaryRequest(turns, "", [], 0, "")),
    "formation": lambda turns: ExtractiveEngine().form_memories(FormationRequest(turns, [everything(turns)], "")),
    "digest": lambda turns: ExtractiveEngine().digest(DigestRequest(turns, "", 300, "")),
}


def everything(turns: Sequence[Turn]) -> StreamSection:
    return StreamSection("session", "", 60, 60, " ".join(turn.content for turn in turns))


def steps_of(function: Callable[[], object]) -> int:
    """Count the function calls, in Python and in C, of a function."""
    count = 0

    def step(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(step)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", LONG)
def test_row_7_the_work_is_linear_in_the_length_of_the_text(kind: str, call: str) -> None:
    turns = [Turn(n, "assistant" if n % 2 else "user", LONG[kind](n), MONDAY) for n in range(48)]
    CALLS[call](turns[:2])  # loads data that is loaded once
    once, twice = (steps_of(lambda: CALLS[call](some)) for some in (turns[:24], turns))  # noqa: B023
    assert twice < 2.5 * once


def test_a_repeated_sentence_becomes_one_item() -> None:
    turns = talk([("user", "I like the kiln. I like the kiln. The shop opens in May.")] * 4)
    section = StreamSection("session", "", 0, 60, "")
    [entry] = ExtractiveEngine().form_memories(FormationRequest(turns, [section], "")).streams
    assert [item["text"] for item in entry["facts"]] == ["User: I like the kiln.", "User: The shop opens in May."]


def test_a_window_with_too_many_pauses_is_divided_at_the_longest() -> None:
    at = [MONDAY + timedelta(days=n // 3, hours=n // 30) for n in range(900)]
    turns = [Turn(n, "user", f"Day {n // 3}.", at[n]) for n in range(900)]
    answer = built(turns)
    assert len(answer.moments) == 200
    assert [n for start, end in ranges(answer) for n in range(start, end + 1)] == list(range(900))


odd_texts = st.text(max_size=200) | st.sampled_from(
    [
        "",
        " ",
        "?",
        "👩‍👩‍👧" * 50,
        "\u202e\u2066",
        "a" * 3000,
        "1,2,3",
        "Maria: ",
        "I am a I am a",
        "…",
        "ﷺ" * 100,
        "\x01\x1f",
    ]
)


@pytest.mark.slow
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "tool"]), odd_texts, st.integers(-100_000, 100_000)),
        min_size=1,
        max_size=60,
    )
)
def test_any_window_is_covered_once_within_all_limits(rows: list[tuple[str, str, int]]) -> None:
    turns = [Turn(n, role, text, MONDAY + timedelta(seconds=at)) for n, (role, text, at) in enumerate(rows)]
    answer = built(turns)
    assert [n for start, end in ranges(answer) for n in range(start, end + 1)] == list(range(len(turns)))
    MomentAnswer.model_validate(answer.model_dump())
    answer.model_dump_json().encode()


def test_tags_do_not_repeat_each_other() -> None:
    [moment] = built(talk([("user", "The kiln, the old kiln and the kiln element. Kilns need elements.")] * 3)).moments
    tags = moment.topic_tags
    assert tags and len(tags) == len(set(tags))
    assert sum("kiln" in tag for tag in tags) == 1


def test_a_speakers_name_is_not_repeated_whatever_its_punctuation() -> None:
    answer = built(talk([("user", "Maria:  The oven broke."), ("assistant", "John: The bakery opens in May.")] * 6))
    assert "User:" not in answer.moments[0].summary
    assert set(answer.moments[0].present_persons) >= {"Maria", "John"}


def test_bracketed_asides_are_not_topics() -> None:
    aside = [
        ("user", "The kiln needs an element. [shares a photo of a snowman]"),
        ("assistant", "Which element broke?"),
    ]
    answer = built(talk(aside * 8))
    tags = " ".join(answer.moments[0].topic_tags)
    assert "kiln" in tags
    assert "photo" not in tags and "snowman" not in tags
