"""What is kept of a conversation."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from moments_app.engines.calls.formation import FormationRequest, Limits, StreamSection
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.extractive.sentences import read
from moments_app.engines.transcript import Turn

FIVE = Limits(0, 5, 50)
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


def formed(talk: Sequence[tuple[str, str]], *sections: StreamSection) -> list[tuple[list[str], list[str]]]:
    """The observations and the facts of each section."""
    answer = ExtractiveEngine().form_memories(FormationRequest(turns_of(talk), sections, ""))
    return [
        ([item["text"] for item in entry["observations"]], [item["text"] for item in entry["facts"]])
        for entry in answer.streams
    ]


def test_facts_are_statements_and_the_person_s_are_observed() -> None:
    session, user = formed(
        TALK, StreamSection("session", "", None, FIVE, ""), StreamSection("user", "", FIVE, None, "")
    )
    assert session == ([], ["Bo starts at the harbor office on 9 March 2026."])
    assert user == (
        ["Ada adopted another puppy called Biscuit on 3 March 2026.", "Their names are Salt, Pepper and Biscuit."],
        [],
    )


def test_a_name_that_the_application_gives_says_who_speaks() -> None:
    turns = [replace(turns_of([("user", "I adopted a puppy called Biscuit.")])[0], name="Ada")]
    section = StreamSection("user", "", FIVE, None, "")
    [entry] = ExtractiveEngine().form_memories(FormationRequest(turns, [section], "")).streams
    assert [item["text"] for item in entry["observations"]] == ["Ada adopted a puppy called Biscuit."]


def test_what_is_said_of_everybody_is_nobodys() -> None:
    said = ["Our kids are our future; they should have the best of all.", "Our whole planet needs our help this year."]
    session, user = StreamSection("session", "", None, FIVE, ""), StreamSection("user", "", FIVE, FIVE, "")
    for role, name in (("user", "User"), ("assistant", "Assistant")):
        assert formed([(role, text) for text in said], session, user) == [([], []), ([], [])]
        assert read(turns_of([(role, said[0])])).sentences[0].told == f"{name} said: Our kids are our future"
    own = ["We put our savings into our future house in Porto.", "Our kids painted our kitchen green."]
    assert formed([("user", text) for text in own], session)[0][1] == [
        "User put their savings into their future house in Porto.",
        "User's kids painted their kitchen green.",
    ]


def test_limits_are_kept_and_what_says_most_stays() -> None:
    things = (
        "anvil bellows chisel dowel easel funnel gimlet hammer inkwell jigsaw kiln ladder mallet needle oven".split()
    )
    talk = [("user", f"My {thing} broke on Friday evening.") for thing in things]
    talk += [("user", "I am allergic to hazelnuts."), ("user", "My wife Iris sold her old violin.")]
    user = StreamSection("user", "", Limits(0, 1, 25), Limits(0, 2, 6), "")
    session = StreamSection("session", "", None, Limits(0, 2, 6), "")
    [(observations, lasting)], [(_, facts)] = formed(talk, user), formed(talk, session)
    assert observations == ["User's wife Iris sold her old violin."]
    assert lasting == ["User is allergic to hazelnuts."]
    assert "User is allergic to hazelnuts." in facts
    assert len(facts) == 2 and all(len(fact.split()) <= 6 for fact in facts)


def test_what_a_line_says_already_is_not_kept_again_whatever_the_lines_say_together() -> None:
    known = "- Ada has a boat in Oslo\n- Ada sold a violin"
    said = [("user", "I have a boat in Oslo."), ("user", "I sold my boat."), ("user", "I play the violin in Oslo.")]
    [(_, facts)] = formed(said, StreamSection("session", "", None, FIVE, known))
    assert facts == ["User sold their boat.", "User plays the violin in Oslo."]


def test_a_shard_gets_observations_and_other_sentences_as_facts_but_nobody_s_statement() -> None:
    prompt = "What is known of kilns, elements and firing schedules"
    talk = [
        ("assistant", "A kiln element lasts about 150 firings."),
        ("user", "My kiln element broke and my firing schedule is lost."),
        ("assistant", "The firing schedule of a kiln begins with 60 degrees an hour."),
        ("assistant", "The kiln and its elements cool in twelve hours."),
    ]
    [(observations, facts)] = formed(talk, StreamSection("shard kilns", prompt, Limits(0, 2, 35), FIVE, ""))
    assert len(observations) == 2 and len(facts) == 1
    assert not set(observations) & set(facts)
    assert "My" not in str(observations + facts) and "User" not in str(observations + facts)


def test_what_begins_with_a_noun_that_is_a_verb_too_is_stated_and_what_is_asked_for_is_no_fact() -> None:
    talk = [("user", "Work is busy in March because of the trade fair."), ("assistant", "Check the kiln in March.")]
    assert formed(talk, StreamSection("session", "", None, FIVE, "")) == [
        ([], ["Work is busy in March because of the trade fair."])
    ]
