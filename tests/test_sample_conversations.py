"""The sample conversations are complete, and their questions are worded unlike the turns."""

import json
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from benchmarks.conversations import MINUTE, NOT_ANSWERED, Conversation, Question
from sessions_app import lexemes

FOLDER = Path(__file__).parents[1] / "benchmarks/samples/conversations"
SEVERAL_FACTS = 1
QUESTIONS, UNANSWERED, TURNS = 40, 4, 250
MAX_SHARED = 0.25  # maximum of the average share of a question's words that its evidence contains


@pytest.fixture(params=sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def raw(request: pytest.FixtureRequest) -> Any:
    return json.loads(request.param.read_text())


@pytest.fixture
def conversation(raw: Any) -> Conversation:
    return Conversation.model_validate(raw)  # checks that ids are unique and that evidence exists


def test_a_conversation_is_long_enough_and_has_the_license_of_the_repository(
    raw: Any, conversation: Conversation
) -> None:
    assert raw["license"] == "Apache-2.0" and raw["language"]
    assert len(list(conversation.turns)) >= TURNS
    assert all(turn.text.strip() for _session, turn in conversation.turns)
    assert len(conversation.questions) == QUESTIONS


def test_times_and_numbers_of_sessions_ascend(conversation: Conversation) -> None:
    for one, other in pairwise(conversation.sessions):
        assert one.n < other.n
        assert one.at + len(one.turns) * MINUTE < other.at
    assert all(session.at.utcoffset() == timedelta(0) for session in conversation.sessions)


def test_every_question_has_the_evidence_required_by_its_category(conversation: Conversation) -> None:
    session_of = {turn.id: session.n for session, turn in conversation.turns}
    for question in conversation.questions:
        assert str(question.a).strip() or question.category == NOT_ANSWERED, question.q
        assert bool(question.evidence) == (question.category != NOT_ANSWERED), question.q
        if question.category == SEVERAL_FACTS:
            assert len({session_of[turn] for turn in question.evidence}) > 1, question.q
    categories = [question.category for question in conversation.questions]
    assert set(categories) == {1, 2, 3, 4, NOT_ANSWERED}
    assert categories.count(NOT_ANSWERED) == UNANSWERED


def test_questions_share_few_words_with_their_evidence(conversation: Conversation) -> None:
    texts = {turn.id: turn.text for _session, turn in conversation.turns}
    shares = {question.q: _shared(question, texts) for question in conversation.scored}
    highest = sorted(shares, key=shares.__getitem__, reverse=True)[:5]
    assert mean(shares.values()) < MAX_SHARED, highest


def _shared(question: Question, texts: dict[str, str]) -> float:
    """Return the share of a question's words that its evidence contains in any form. Stop words are ignored."""
    words = lexemes.whole_words(question.q)
    said = frozenset().union(*(lexemes.stems_in(texts[turn]) for turn in question.evidence))
    return mean(not said.isdisjoint(word.stems) for word in words)
