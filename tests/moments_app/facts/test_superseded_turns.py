"""Turns that say something that is no longer true are marked with what is true instead."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from moments_app.models import MemoryAtom
from moments_app.provenance.retract import retract
from sessions_app.models import Message, Session, UserProfile
from sessions_app.retention.retain import retain
from tests.support.api import Api
from tests.support.lives import say
from tests.support.retention import cover
from tests.support.transcript import arrived_when_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

BEFORE = "I live in Oslo near the harbor."
MARK = "(since 3 March 2025: Bergen)"


def told(user: UserProfile) -> None:
    say(user, "s1", "2025-01-10", BEFORE)
    say(user, "s2", "2025-03-11", "I moved to Bergen on 3 March 2025.")


def found(service: Api, query: str = "live near the harbor", user_id: str = "ada", **asked: Any) -> list[str]:
    """Return the results of a search."""
    answer = service.post("memory/search", user_id=user_id, query=query, **asked)
    return [result["content"] for result in answer.json()["results"]]


def context(service: Api, session_id: str, **asked: Any) -> str:
    asked = {"user_id": "ada", "session_id": session_id, "format": "markdown"} | asked
    return str(service.get("memory/context", **asked).json()["context"])


def test_only_turns_of_the_same_person_are_marked(ada: UserProfile, bo: UserProfile, service: Api) -> None:
    told(ada)
    say(bo, "s1", "2025-01-10", BEFORE)
    assert found(service, user_id="bo")[0] == BEFORE
    assert found(service)[0] == f"{BEFORE} {MARK}"


def test_searches_and_contexts_mark_a_superseded_turn(ada: UserProfile, service: Api) -> None:
    told(ada)
    assert found(service)[0] == f"{BEFORE} {MARK}"
    assert f"{BEFORE} {MARK}" in context(service, "new", query="Who lives near the harbor?")
    assert f"{BEFORE} {MARK}" in context(service, "s1", layers="hot_turns")
    assert MARK not in context(service, "s2", layers="hot_turns")


def test_the_mark_names_the_latest_value(ada: UserProfile, service: Api) -> None:
    told(ada)
    say(ada, "s3", "2025-09-15", "I moved to Stavanger on 1 September 2025.")
    assert found(service)[0] == f"{BEFORE} (since 1 September 2025: Stavanger)"


def test_a_fact_that_ended_without_a_successor_is_marked_as_no_longer_true(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", BEFORE)
    fact = MemoryAtom.objects.get(attribute="home")
    service.patch(f"facts/{fact.atom_id}", user_id="ada", state="ended", valid_until="2025-02-01T00:00:00Z")
    assert found(service)[0].startswith(f"{BEFORE} (no longer true since 1 February 2025: ")


def test_a_turn_that_also_says_what_is_true_now_has_no_mark(ada: UserProfile, service: Api) -> None:
    both = f"{BEFORE} I moved to Bergen on 3 March 2025."
    say(ada, "s1", "2025-03-11", both)
    assert found(service)[0] == both


def test_a_retraction_of_the_later_turn_removes_the_mark(ada: UserProfile, service: Api) -> None:
    told(ada)
    retract(Session.objects.get(session_id="s2"), [0], reason="test", requested_by="test")
    assert found(service)[0] == BEFORE
    assert MARK not in context(service, "s1", layers="hot_turns")


def test_a_context_of_the_past_has_no_mark_from_the_future(ada: UserProfile, service: Api) -> None:
    told(ada)
    for day, has_mark in (("2025-03-10", False), ("2025-03-12", True)):
        asked = {"as_of": f"{day}T12:00:00Z", "layers": "hot_turns"}
        assert (MARK in context(service, "s1", **asked)) is has_mark


def test_a_shortened_turn_keeps_its_mark(ada: UserProfile, service: Api) -> None:
    more = " ".join(f"The ferry number {number} leaves from the harbor at noon." for number in range(20))
    say(ada, "s1", "2025-01-10", f"{BEFORE} {more}")
    say(ada, "s2", "2025-03-11", "I moved to Bergen on 3 March 2025.")
    asked = {"query": "Who lives near the harbor?", "layers": "retrieved"}
    contexts = [context(service, "new", max_tokens=budget, **asked) for budget in range(100, 600, 25)]
    lengths = {len(text) for text in contexts if f"{BEFORE} " in text and MARK in text}
    assert len(lengths) > 2  # cut in the middle, and at a sentence
    assert all(MARK in text for text in contexts if BEFORE in text)


@pytest.mark.usefixtures("archive_folder")
def test_an_archived_turn_is_marked(ada: UserProfile, service: Api) -> None:
    told(ada)
    for session in Session.objects.filter(user=ada):
        arrived_when_said(session)
        cover(session, session.message_count)
    assert retain().archived_turns == Message.objects.archived().count() > 0
    assert found(service)[0] == f"{BEFORE} {MARK}"


def test_a_plan_whose_day_has_passed_does_not_mark_its_turn(ada: UserProfile, service: Api) -> None:
    plan = "I have an appointment at the harbor clinic on 20 January 2025."
    say(ada, "s1", "2025-01-10", plan)
    assert found(service, "appointment clinic")[0] == plan


def test_marks_need_one_more_statement_and_only_if_a_fact_has_ended(
    ada: UserProfile, bo: UserProfile, service: Api
) -> None:
    say(bo, "s1", "2025-01-10", BEFORE)
    say(bo, "s2", "2025-03-11", "The ferry leaves from the harbor.")
    told(ada)

    def statements(user_id: str) -> int:
        found(service, user_id=user_id)
        with CaptureQueriesContext(connection) as captured:
            found(service, user_id=user_id)
        return len(captured)

    assert statements("ada") == statements("bo") + 1
