"""Sixty people introduce themselves in their own words to an assistant that answers in English."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from moments_app.engines.calls.formation import FormationRequest, StreamSection
from moments_app.engines.calls.moments import Journey, MomentRequest
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.statements import statement_of
from moments_app.engines.transcript import Turn

PEOPLE: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "introductions.json").read_text(encoding="utf-8")
)
REPLIES = (
    "Hello! It is lovely to meet you, and I live to help.",
    "You should drink more water and go for a walk every day.",
)
ENOUGH = 0.9  # minimum share of the attributes that are remembered


def turns_of(person: dict[str, Any]) -> list[Turn]:
    at = datetime(2026, 3, 4, 8, tzinfo=UTC)
    said = [("user", person["said"]), *(("assistant", reply) for reply in REPLIES)]
    return [Turn(n, role, text, at + timedelta(minutes=n)) for n, (role, text) in enumerate(said)]


def remembered(person: dict[str, Any]) -> list[str]:
    sections = [
        StreamSection("session", "", 0, 50, ""),
        StreamSection("user", "", 25, 50, ""),
    ]
    entries = ExtractiveEngine().form_memories(FormationRequest(turns_of(person), sections, "")).streams
    return [item["text"] for entry in entries for item in entry["facts"] + entry["observations"]]


def found(person: dict[str, Any]) -> dict[str, bool]:
    """Return for each attribute of a person whether memory has it."""
    values = {said.attribute: said.value for text in remembered(person) if (said := statement_of(text))}
    return {key: person[key] in values.get(key, "") for key in ("name", "home", "work") if key in person}


@pytest.mark.parametrize("language", sorted({person["language"] for person in PEOPLE}))
def test_self_introductions_are_remembered(language: str) -> None:
    people = [person for person in PEOPLE if person["language"] == language]
    names = [found(person)["name"] for person in people]
    everything = [is_found for person in people for is_found in found(person).values()]
    assert sum(names) >= ENOUGH * len(names)
    assert sum(everything) >= ENOUGH * len(everything)


@pytest.mark.parametrize("person", PEOPLE, ids=lambda person: person["name"])
def test_hypothetical_and_assistant_sentences_are_not_facts(person: dict[str, Any]) -> None:
    kept = remembered(person)
    for text in (*person.get("unreal", ()), *REPLIES):
        assert not any(text.rstrip(".?。") in line for line in kept)


@pytest.mark.parametrize("person", [one for one in PEOPLE if one["language"] == "zh"], ids=lambda one: one["name"])
def test_a_chinese_moment_has_a_chinese_name_and_tags(person: dict[str, Any]) -> None:
    [moment] = ExtractiveEngine().build_moments(MomentRequest(turns_of(person)[:1], Journey(), "")).moments
    assert moment.topic_tags and not moment.name.startswith("conversation-")
