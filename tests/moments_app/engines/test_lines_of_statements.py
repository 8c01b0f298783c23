"""The lines in which a model returns statements: each has a kind, its turns, and the statements that it ends."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from moments_app.engines.calls import formation, moments
from moments_app.engines.calls.formation import (
    WEAK,
    FormationAnswer,
    FormationRequest,
    StreamSection,
    check_answer,
    parse_line,
)
from moments_app.engines.statements.named_people import is_proper_name
from moments_app.engines.transcript import Turn

AT = datetime(2026, 3, 2, tzinfo=UTC)
SAID = "Nora likes tea, lives in Bergen, bought a kiln, and wants short answers."
BOTH, FACTS, SHARD = (
    StreamSection("user", "", 25, 50, ""),
    StreamSection("session", "", 0, 50, ""),
    StreamSection("shard kilns", "", 35, 30, ""),
)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("event 4: Nora moved.", {"kind": "event", "turns": [4], "text": "Nora moved."}),
        (" Home 4, 7:Nora: in Bergen ", {"kind": "home", "turns": [4, 7], "text": "Nora: in Bergen"}),
        ("plan 2-4,9: A\nB", {"kind": "plan", "turns": [2, 3, 4, 9], "text": "A\nB"}),
        ("home 4 ends 3: X", {"kind": "home", "turns": [4], "text": "X", "ends": [3], "confidence": 1.0}),
        *(
            (line, {"kind": "work", "turns": [4], "text": "X", "letter": "A"} | more)
            for line, more in (
                ("work 4 as A: X", {}),
                ("work 4 about Nora as A: X", {"other_person": "Nora"}),
                ("work 4 as A about Nora: X", {"other_person": "Nora"}),
                ("work 4 ends 3 as A: X", {"ends": [3], "confidence": 1.0}),
                ("work 4 ends 3 about Nora as A: X", {"ends": [3], "confidence": 1.0, "other_person": "Nora"}),
            )
        ),
        (
            "home 4 ends A, 3-4,B: X",
            {"kind": "home", "turns": [4], "text": "X", "ends": [3, 4, "A", "B"], "confidence": 1.0},
        ),
        (
            "event 3 about Nora as a Child ends 2: X",
            {
                "kind": "event",
                "turns": [3],
                "text": "X",
                "other_person": "Nora as a Child",
                "ends": [2],
                "confidence": 1.0,
            },
        ),
        ("home 4 maybe ends 3,5: X", {"kind": "home", "turns": [4], "text": "X", "ends": [3, 5], "confidence": WEAK}),
    ],
)
def test_a_valid_line_is_parsed(line: str, fields: dict[str, Any]) -> None:
    assert parse_line(line) == fields


@pytest.mark.parametrize(
    "line", ["Nora moved.", "event: Nora moved.", "event 4", "event 4:", "event x: y", "", 7, None]
)
def test_other_values_are_left_to_validation(line: Any) -> None:
    assert parse_line(line) == line


@pytest.mark.parametrize("head", ["home 4 ends 1 ends 2", "home 4 ends 1 maybe ends 2", "home 4 as A as B"])
def test_a_repeated_clause_is_not_parsed(head: str) -> None:
    assert parse_line(f"{head}: X") == f"{head}: X"


@pytest.mark.parametrize("head", ["home 4 as AB", "home 4 as a", "home 4 ends A-C", "home 4 ends 3A", "home 4 ends 1,"])
def test_only_single_letters_and_numbers_name_ended_statements(head: str) -> None:
    assert parse_line(f"{head}: X") == f"{head}: X"


def test_a_huge_range_is_cut_to_the_limit_of_turns() -> None:
    assert len(parse_line("event 0-999999999: x")["turns"]) == formation.MAX_TURNS
    assert len(parse_line("event 1 ends 0-999999999: x")["ends"]) == formation.MAX_ENDED


def answered(section: StreamSection, *lines: str) -> dict[str, Any]:
    """Return what is kept of a model's lines for a stream."""
    request = FormationRequest([Turn(4, "user", SAID, AT)], [section], "")
    entry = {"stream": section.label, "statements": list(lines)}
    [entry] = check_answer(request, FormationAnswer(streams=[entry])).answer.streams
    return {name: [item["text"] for item in entry[name]] for name in ("observations", "facts", "lessons")}


def test_preferences_and_instructions_are_observations_and_others_are_facts() -> None:
    lines = [
        "preference 4: Nora likes tea.",
        "instruction 4: Nora wants short answers.",
        "home 4: Nora lives in Bergen.",
        "event 4: Nora bought a kiln.",
        "lesson 4: Always answer in short answers.",
    ]
    texts = [line.partition(": ")[2] for line in lines]
    assert answered(BOTH, *lines) == {"observations": texts[:2], "facts": texts[2:4], "lessons": texts[4:]}
    assert answered(FACTS, *lines) == {"observations": [], "facts": texts[:4], "lessons": texts[4:]}
    assert answered(BOTH, "other 4: Nora likes tea.", "other 4: Nora lives in Bergen.") == {
        "observations": ["Nora likes tea."],  # the turn is found by its words
        "facts": ["Nora lives in Bergen."],
        "lessons": [],
    }


def test_an_instruction_is_a_lesson_or_dropped_in_a_shard() -> None:
    assert answered(SHARD, "other 4: Always answer in short answers.")["observations"] == []


def test_a_model_is_asked_again_if_its_lines_cannot_be_parsed() -> None:
    request = FormationRequest([Turn(4, "user", SAID, AT)], [BOTH], "")
    entry = {"stream": "user", "statements": ["Nora likes tea."]}
    assert check_answer(request, FormationAnswer(streams=[entry])).problem == "no statement is `KIND TURNS: TEXT`."
    assert check_answer(request, FormationAnswer(streams=[{"stream": "user", "statements": []}])).problem == ""


def test_the_known_statements_nearest_to_the_turns_are_shown() -> None:
    known = {n: f"Nora owns a {thing}." for n, thing in enumerate([f"word{n}" for n in range(100)])}
    section = StreamSection("user", "", 25, 50, "", known)

    def shown(count: int) -> int:
        turns = [Turn(n, "user", f"My word{n} and my word{99 - n} are here.", AT) for n in range(count)]
        line = FormationRequest(turns, [section], "").question.known
        return len(json.loads(line.removeprefix("Stream: "))["known"])

    assert [shown(count) for count in (2, 12, 45)] == [4, 8, 15]


def test_schemas_have_descriptions_for_models_but_none_for_developers() -> None:
    for shape in (formation.SHAPE, moments.SHAPE):
        for internal in ("Args", "sent to the model", "proposed by the engine"):
            assert internal not in shape.as_text
        assert '"description"' in shape.as_text


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("Anna", True), ("Anna Berg", True), ("Dr. Weiss", True), ("Анна", True), ("王芳", True)]
    + [(text, False) for text in ("the trip", "The trip", "I", "my boss", "They", "Monday", "")],
)
def test_only_proper_names_name_other_people(text: str, is_name: bool) -> None:
    assert is_proper_name(text) == is_name
