"""Turns that say something that is no longer true are marked with what is true instead."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from moments_app.context import receipts
from moments_app.models import ContextReceipt, MemoryAtom
from moments_app.provenance.retract import retract
from moments_app.turns.corrected import ends_of
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.retention.retain import retain
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.lives import say
from tests.support.retention import cover
from tests.support.streams import fold, form
from tests.support.tables import rows_read
from tests.support.transcript import arrived_when_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "kept_receipts")]

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


@pytest.mark.slow
def test_searches_and_contexts_mark_a_superseded_turn(ada: UserProfile, service: Api) -> None:
    told(ada)
    assert found(service)[0] == f"{BEFORE} {MARK}"
    assert f"{BEFORE} {MARK}" in context(service, "new", query="Who lives near the harbor?")
    assert f"{BEFORE} {MARK}" in context(service, "s1", layers="hot_turns")
    assert MARK not in context(service, "s2", layers="hot_turns")


@pytest.mark.slow
def test_a_turn_that_a_later_turn_corrects_is_marked(ada: UserProfile, service: Api) -> None:
    wrong = "My daughter is called Maya, and she plays the violin."
    say(ada, "s1", "2025-01-10", wrong)
    say(ada, "s2", "2025-03-11", "My daughter's name is Mia, not Maya.")
    marked = f"{wrong} (corrected since: Mia, not Maya)"
    assert found(service, "plays the violin")[0] == marked
    assert marked in context(service, "new", query="Who plays the violin?")
    assert marked in context(service, "s1", layers="hot_turns")
    assert "corrected since" not in context(service, "s2", layers="hot_turns")
    assert "corrected since" not in context(service, "s1", layers="hot_turns", as_of="2025-03-10T12:00:00Z")
    say(ada, "s3", "2025-04-12", "My daughter's name is Mina, not Mia.")
    assert found(service, "plays the violin")[0] == f"{wrong} (corrected since: Mina, not Maya)"
    retract(Session.objects.get(session_id="s3"), [0], reason="test", requested_by="test")
    assert found(service, "plays the violin")[0] == marked
    retract(Session.objects.get(session_id="s2"), [0], reason="test", requested_by="test")
    assert found(service, "plays the violin")[0] == wrong


def test_a_corrected_value_that_changed_since_is_marked_with_the_change(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", BEFORE)
    say(ada, "s2", "2025-02-11", "I live in Bergen, not Oslo.")
    assert found(service)[0] == f"{BEFORE} (corrected since: Bergen, not Oslo)"
    say(ada, "s3", "2025-09-15", "I moved to Stavanger on 1 September 2025.")
    assert found(service)[0] == f"{BEFORE} (since 1 September 2025: Stavanger)"


def test_a_correction_by_a_client_marks_a_turn_once(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", BEFORE)
    fact = MemoryAtom.objects.get(attribute="home")
    service.patch(f"facts/{fact.atom_id}", user_id="ada", content="Ada lives in Bergen near the harbor.")
    assert found(service)[0] == f"{BEFORE} (corrected since: Bergen, not Oslo)"


def test_a_fact_that_ended_without_a_successor_is_marked_as_no_longer_true(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", BEFORE)
    fact = MemoryAtom.objects.get(attribute="home")
    service.patch(f"facts/{fact.atom_id}", user_id="ada", state="ended", valid_until="2025-02-01T00:00:00Z")
    assert found(service)[0].startswith(f"{BEFORE} (no longer true since 1 February 2025: ")


def test_a_turn_that_also_states_the_current_value_has_no_mark(ada: UserProfile, service: Api) -> None:
    both = f"{BEFORE} I moved to Bergen on 3 March 2025."
    say(ada, "s1", "2025-03-11", both)
    assert found(service)[0] == both


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_statement_that_is_true_again_has_no_mark(ada: UserProfile, service: Api) -> None:
    told(ada)
    say(ada, "s3", "2025-09-15", "I moved to Oslo on 1 September 2025.")
    assert found(service)[0] == BEFORE
    assert "I moved to Bergen on 3 March 2025. (since 1 September 2025: Oslo)" in found(service, "moved in March")


@pytest.mark.slow
def test_a_repeated_statement_has_no_mark_after_a_consolidation(ada: UserProfile, service: Api) -> None:
    said = "I love climbing in the mountains near Voss."
    say(ada, "s1", "2025-01-10", said)
    fact = MemoryAtom.objects.get(content__contains="climbing", stream__stream_type="user")
    assert fact.attribute == ""
    service.patch(f"facts/{fact.atom_id}", user_id="ada", state="ended", valid_until="2025-02-01T00:00:00Z")
    assert "no longer true since 1 February 2025" in found(service, "climbing near Voss")[0]
    say(ada, "s2", "2025-03-11", said)
    assert "no longer true" not in " ".join(found(service, "climbing near Voss"))
    fold(fact.stream)
    assert MemoryAtom.objects.get(content=fact.content, formed_at__gt=fact.formed_at).state == "absorbed"
    assert "no longer true" not in " ".join(found(service, "climbing near Voss"))
    assert said in context(service, "s1", layers="hot_turns")
    assert "no longer true" not in context(service, "s1", layers="hot_turns")


def test_a_value_that_is_true_again_in_one_session_is_current(ada: UserProfile, service: Api) -> None:
    said = [BEFORE, "I moved to Bergen on 3 March 2025.", BEFORE]
    days = [datetime(2025, month, 10, tzinfo=UTC) for month in (1, 3, 5)]
    turns = [NewMessage("user", text, created_at=day) for text, day in zip(said, days, strict=True)]
    form(append(ada, "s1", turns).session)
    [home] = service.get("facts", user_id="ada", attribute="home").json()["facts"]
    assert (home["value"], home["valid_from"]) == ("Oslo", None)
    assert found(service, "moved to Bergen")[0] == f"{said[1]} (since 10 May 2025: Oslo)"


@pytest.mark.slow
def test_a_statement_that_only_ends_another_is_no_value(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2025-01-10", BEFORE)
    say(ada, "s2", "2025-03-11", "I no longer live in Oslo.")
    assert "(no longer true since 11 March 2025: I live in Oslo near the harbor" in found(service)[0]
    say(ada, "s3", "2025-04-12", "I live in Bergen.")
    assert found(service)[0] == f"{BEFORE} (since 12 April 2025: Bergen)"
    say(ada, "s4", "2025-05-13", "I moved to Oslo on 2 May 2025.")
    assert found(service)[0] == BEFORE


@pytest.mark.slow
def test_a_mark_names_what_was_true_at_the_time(ada: UserProfile, service: Api) -> None:
    told(ada)
    say(ada, "s3", "2025-09-15", "I live in Oslo near the harbor.")
    asked = {"layers": "hot_turns", "as_of": "2025-05-01T12:00:00Z"}
    assert MARK in context(service, "s1", **asked)
    assert MARK not in context(service, "s1", layers="hot_turns")


def test_a_mark_hides_no_fact(ada: UserProfile, service: Api) -> None:
    told(ada)
    say(ada, "s3", "2025-03-12", "I live in Bergen.")
    assert "User: I live in Bergen." in found(service, "live near the harbor", kinds=["turn", "fact"]) + found(
        service, "live near the harbor", kinds=["fact"]
    )


def test_row_41_a_receipt_names_the_facts_that_marks_mention(ada: UserProfile, service: Api) -> None:
    told(ada)
    bergen = MemoryAtom.objects.get(attribute="home", value="Bergen")
    recalled = {"layers": "retrieved", "query": "Who lives near the harbor?"}
    for session_id, asked in (("s1", {"layers": "hot_turns"}), ("s2", recalled)):
        context(service, session_id, **asked)
        receipts.waiting.flush()
        refs = ContextReceipt.objects.latest("pk").refs
        assert f"rem://atoms/{bergen.atom_id}" in refs[str(asked["layers"])]


@pytest.mark.slow
def test_marks_are_found_by_indexes(ada: UserProfile, service: Api) -> None:
    told(ada)
    stream = MemoryAtom.objects.filter(user=ada)[0].stream
    more = [MemoryAtom(user=ada, stream=stream, content=f"Fact {n}.", content_hash=str(n)) for n in range(3_000)]
    MemoryAtom.objects.bulk_create(more)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE moments_app_memoryatom")
    turn = Message.objects.get(content=BEFORE)
    with acting_for("ada", application=DEFAULT):
        before = rows_read(MemoryAtom)
        assert ends_of(ada, [turn.pk])
        assert rows_read(MemoryAtom) - before < 10


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


@pytest.mark.slow
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
