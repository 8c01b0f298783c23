"""Ended facts when retracted, undone, erased, exported, restored, or named by a model."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from moments_app.models import Contradiction, MemoryAtom, MemoryStream, Retraction
from moments_app.provenance.correct import (
    CorrectionRequest,
    correct,
    end_request,
    replacement_request,
    withdrawal_request,
)
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.streams import edit
from moments_app.streams.formation import by_label
from moments_app.streams.known import known_items_of
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import on_its_own_connection
from tests.support.jobs import work_off
from tests.support.lives import MOVES, say
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form, note

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def timeline(user: UserProfile, attribute: str = "home") -> list[tuple[str, str, str]]:
    """Return the values of an attribute, each with its state and end."""
    facts = MemoryAtom.objects.filter(user=user, attribute=attribute).order_by("formed_at", "id")
    return [(fact.value, fact.state, f"{fact.valid_until:%Y-%m-%d}" if fact.valid_until else "") for fact in facts]


def moved(user: UserProfile) -> None:
    for day, text in MOVES:
        say(user, f"on-{day}", day, text)


ALL = [("Oslo", "ended", "2025-03-03"), ("Bergen", "ended", "2025-09-15"), ("Stavanger", "active", "")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("session_id", "left"),
    [
        ("on-2025-09-15", [ALL[0], ("Bergen", "active", "")]),
        ("on-2025-03-03", [("Oslo", "ended", "2025-09-15"), ALL[2]]),
        ("on-2025-01-10", ALL[1:]),
    ],
)
def test_row_10_a_fact_that_a_retracted_turn_ended_is_current_until_the_undo(
    ada: UserProfile, session_id: str, left: list[Any]
) -> None:
    moved(ada)
    assert timeline(ada) == ALL
    made = retract(Session.objects.get(session_id=session_id), [0], reason="planted", requested_by="test")
    work_off()
    assert timeline(ada) == left
    undo_retraction(Retraction.objects.get(pk=made.pk), requested_by="test")
    work_off()
    assert timeline(ada) == ALL


@pytest.mark.slow
def test_an_evicted_fact_no_longer_ends_another(ada: UserProfile) -> None:
    moved(ada)
    edit.evict(MemoryAtom.objects.get(value="Stavanger"), requested_by="test")
    assert timeline(ada)[:2] == [ALL[0], ("Bergen", "active", "")]
    edit.restore(MemoryAtom.objects.get(value="Stavanger"), requested_by="test")
    assert timeline(ada) == ALL


@pytest.mark.slow
def test_an_export_has_ended_facts_with_their_replacements(life: UserProfile, tmp_path: Path) -> None:
    kept = list(
        MemoryAtom.objects.in_order().values_list(
            "content", "state", "valid_from", "valid_until", "ended_at", "is_wrong", "replaced_by__content"
        )
    )
    with (tmp_path / "export.zip").open("wb") as file:
        export_user("ada", file, application=DEFAULT)
    erase_user("ada", application=DEFAULT, actor="test")
    assert not MemoryAtom.objects.exists()
    import_user(tmp_path / "export.zip", application=DEFAULT)
    values = MemoryAtom.objects.in_order().values_list(
        "content", "state", "valid_from", "valid_until", "ended_at", "is_wrong", "replaced_by__content"
    )
    assert list(values) == kept
    say(UserProfile.objects.get(), "later", "2026-01-10", "I live in Tromsø.")
    assert timeline(UserProfile.objects.get())[-2:] == [("Stavanger", "ended", "2026-01-10"), ("Tromsø", "active", "")]


def answers(*facts: str) -> behave.Behaviour:
    return behave.memories({"stream": "user", "statements": list(facts)})


@pytest.mark.slow
@pytest.mark.parametrize("change", [end_request, withdrawal_request])
def test_row_2_a_fact_that_a_person_ended_stays_ended_after_an_undo_and_another_retraction(
    ada: UserProfile, change: Callable[[], CorrectionRequest]
) -> None:
    say(ada, "s1", "2025-01-10", "I moved to Oslo.")
    say(ada, "s2", "2025-03-03", "I moved to Bergen.")
    moved = Session.objects.get(session_id="s2")
    made = retract(moved, None, reason="planted", requested_by="test")
    oslo = MemoryAtom.objects.get(value="Oslo")
    assert oslo.state == "active"
    correct(oslo, change(), requested_by="operator:ann")
    undo_retraction(made, requested_by="test")
    retract(moved, None, reason="planted", requested_by="test")
    oslo.refresh_from_db()
    assert (oslo.state, oslo.ended_by) == ("ended", "operator:ann")
    assert "Oslo" not in UserProfile.objects.get(pk=ada.pk).summary


def said_on(day: str, text: str) -> NewMessage:
    return NewMessage("user", text, created_at=datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC))


def item(text: str, ends: str = "") -> str:
    return f"event 0-99 {ends}".strip() + f": {text}"


@pytest.mark.slow
def test_a_model_ends_listed_facts_by_number_without_another_call(ada: UserProfile, model_server: OpenAIServer) -> None:
    model_server.queue(answers(item("Ada plays the cello."), item("Ada has a boat.")))
    say(ada, "s1", "2025-01-10", "Ada plays the cello. Ada has a boat.")
    model_server.queue(answers(item("Ada sold the boat in February 2025.", "ends 1")))
    with CaptureQueriesContext(connection) as queries:
        job = say(ada, "s2", "2025-02-10", "Ada sold the boat.")
    assert sum('"pinned_content" = ' in query["sql"] for query in queries) == 1  # derived texts are rebuilt once
    asked = model_server.requests[-1]["messages"][1]["content"]
    section = next(
        json.loads(line[8:]) for line in asked.splitlines() if line.startswith("Stream: ") and '"user"' in line
    )
    assert section["known"] == {"1": "Ada has a boat. (2025-01-10)", "2": "Ada plays the cello. (2025-01-10)"}
    boat = MemoryAtom.objects.get(content="Ada has a boat.")
    sold = MemoryAtom.objects.get(content="Ada sold the boat in February 2025.")
    assert (boat.state, boat.replaced_by, f"{boat.valid_until:%Y-%m-%d}") == ("ended", sold, "2025-02-01")
    assert (job.result["ended"], len(model_server.requests)) == (1, 2)
    made = retract(Session.objects.get(session_id="s2"), None, reason="planted", requested_by="test")
    assert MemoryAtom.objects.get(content="Ada has a boat.").state == "active"
    undo_retraction(made, requested_by="test")
    assert MemoryAtom.objects.get(content="Ada has a boat.").state == "ended"


@pytest.mark.slow
def test_row_9_a_model_ends_statements_of_other_sessions_of_the_same_person_and_agent(
    ada: UserProfile, bo: UserProfile, model_server: OpenAIServer
) -> None:
    def of_session(*lines: str) -> behave.Behaviour:
        return behave.memories({"stream": "session", "statements": list(lines)})

    before, after = "The vans come in April.", "The vans come in May."
    for user, session_id, agent in ((ada, "s1", "default"), (ada, "s2", "other"), (bo, "s1", "default")):
        model_server.queue(of_session(item(before)))
        text = NewMessage("user", before, created_at=datetime(2025, 1, 10, tzinfo=UTC))
        form(append(user, session_id, [text], agent_id=agent).session)
    model_server.queue(of_session(item(after, "ends 1")))
    job = say(ada, "s3", "2025-02-10", after)
    asked = model_server.requests[-1]["messages"][1]["content"]
    sections = [json.loads(line[8:]) for line in asked.splitlines() if line.startswith("Stream: ")]
    assert [one.get("known") for one in sections if one["stream"] == "session"] == [{"1": f"{before} (2025-01-10)"}]
    assert job.result["ended"] == 1
    ended = MemoryAtom.objects.filter(state="ended").values_list("user__user_id", "source_session__session_id")
    assert list(ended) == [("ada", "s1")]


def test_row_9_a_session_receives_no_statements_of_another_agent_or_of_shared_memory(ada: UserProfile) -> None:
    sessions = [append(ada, agent, [NewMessage("user", "Hi.")], agent_id=agent).session for agent in ("a", "b")]
    MemoryStream.objects.ensure_for(*sessions)
    shared = MemoryStream.objects.create(stream_type="agent", agent_id="b", name="tips", application_id=DEFAULT)
    streams = {stream.agent_id: stream for stream in MemoryStream.objects.filter(stream_type="user", user=ada)}
    note(shared, "The kiln opens at nine.", "fact", about_kind="application")
    for agent, stream in streams.items():
        note(stream, f"Ada's agent {agent} knows this.", "fact")
    labels = [
        by_label(MemoryStream.objects.visible_to(session).exclude(stream_type="agent", agent_id="a"))
        for session in sessions
    ]
    of_a, of_b = known_items_of(ada, labels)
    assert [atom.content for atom in of_a.statements.values()] == ["Ada's agent a knows this."]
    assert [atom.content for atom in of_b.statements.values()] == ["Ada's agent b knows this."]
    assert set(of_a.statements).isdisjoint(of_b.statements)  # numbers of one answer


@pytest.mark.slow
def test_an_unknown_number_ends_nothing_and_an_uncertain_ending_is_a_question(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    model_server.queue(answers(item("Ada has a boat.")))
    say(ada, "s1", "2025-01-10", "Ada has a boat.")
    model_server.queue(
        answers(
            item("Ada sold the boat.", "ends 7"),
            item("Ada may have sold the boat.", "maybe ends 1"),
            item("Ada sold the boat today."),
        )
    )
    job = say(ada, "s2", "2025-02-10", "Ada may have sold the boat today.")
    assert job.result["dropped"] == {"ends what is not listed": 1}
    assert MemoryAtom.objects.filter(content="Ada sold the boat.").exists()
    assert MemoryAtom.objects.get(content="Ada has a boat.").state == "active"
    [question] = Contradiction.objects.waiting()
    assert question.later.content == "Ada may have sold the boat."


def test_a_model_ends_statements_of_its_own_answer(ada: UserProfile, service: Api, model_server: OpenAIServer) -> None:
    said = {"2025-01-10": "I have a boat at the pier.", "2025-03-03": "I sold the boat today.", "2025-04-04": "I swim."}
    session = append(ada, "s1", [said_on(day, text) for day, text in said.items()]).session
    model_server.queue(
        answers(
            "other 0 as A: User has a boat at the pier.",
            "event 1 as B ends A: User sold the boat on 3 March 2025.",
            "preference 2 as C: User swims.",
        )
    )
    job = form(session)
    boat = MemoryAtom.objects.get(content="User has a boat at the pier.")
    assert boat.replaced_by is not None
    assert (boat.state, boat.replaced_by.content) == ("ended", "User sold the boat on 3 March 2025.")
    assert (job.result["ended"], job.result["dropped"]) == (1, {})
    turn, *_ = service.post("memory/search", user_id="ada", query="boat pier", kinds=["turn"]).json()["results"]
    assert turn["content"] == f"{said['2025-01-10']} (since 3 March 2025: User sold the boat on 3 March 2025.)"


@pytest.mark.slow
def test_a_model_ends_a_fact_that_was_corrected_during_the_call(ada: UserProfile, model_server: OpenAIServer) -> None:
    before, after, over = (
        "Ada rents a garage in Lima Street.",
        "Ada rents a garage in Lisa Street.",
        "Ada left the garage.",
    )
    model_server.queue(answers(item(before)))
    say(ada, "s1", "2025-01-10", before)
    fact = MemoryAtom.objects.get()

    def meanwhile(handler: behave.Handler, body: dict[str, Any]) -> None:
        on_its_own_connection(lambda: correct(fact, replacement_request(after), requested_by="test"))
        answers(item(over, "ends 1"))(handler, body)

    model_server.queue(meanwhile)
    say(ada, "s2", "2025-02-10", over)
    states = dict(MemoryAtom.objects.values_list("content", "state"))
    assert states == {before: "ended", after: "ended", over: "active"}


def test_a_model_cannot_end_a_statement_by_an_invalid_letter(ada: UserProfile, model_server: OpenAIServer) -> None:
    said = ["I have a boat.", "I have a car.", "I sold the boat and the car."]
    session = append(ada, "s1", [said_on(f"2025-01-1{n}", text) for n, text in enumerate(said)]).session
    user = [
        "event 0 as A: User has a boat.",
        "event 1 as A: User has a car.",
        "event 2 ends A: User sold the car.",  # two have this letter
        "event 2 as B ends B: User sold the boat.",  # its own
        "event 2 ends C: User sold a boat and a car.",
        "event 2 ends D: User sold a car and a boat.",  # of another stream
        "event 2 as E: User has no boat.",
        "event 0 ends E: User has a good boat.",  # the later by the earlier
    ]
    other = {"stream": "session", "statements": ["event 0 as D: User has a boat and a car."]}
    model_server.queue(behave.memories({"stream": "user", "statements": user}, other))
    job = form(session)
    assert (job.result["ended"], job.result["dropped"]) == (0, {"ends what is not listed": 4})
    assert job.result["atoms"] == 9
    assert not MemoryAtom.objects.filter(state="ended").exists()


def test_of_two_statements_that_end_each_other_the_later_one_stays(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = append(ada, "s1", [said_on("2025-01-10", "I have a boat. No, I sold it.")]).session
    model_server.queue(
        answers("event 0 as A ends B: User has a boat.", "event 0 as B ends A: User sold the boat."),
    )
    assert form(session).result["ended"] == 1
    states = dict(MemoryAtom.objects.values_list("content", "state"))
    assert states == {"User has a boat.": "ended", "User sold the boat.": "active"}


def test_of_statements_that_end_each_other_in_a_circle_the_last_one_stays(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    said = "I have a boat. No, I sold it. No, I lent it to Nora."
    session = append(ada, "s1", [said_on("2025-01-10", said)]).session
    lines = (
        "as A ends B: User has a boat.",
        "as B ends C: User sold the boat.",
        "as C ends A: User lent Nora the boat.",
    )
    model_server.queue(answers(*(f"event 0 {line}" for line in lines)))
    form(session)
    states = dict(MemoryAtom.objects.values_list("content", "state"))
    assert states["User lent Nora the boat."] == "active"
    assert states["User has a boat."] == "ended"


@pytest.mark.slow
def test_small_talk_displaces_no_facts(ada: UserProfile, model_server: OpenAIServer) -> None:
    lasting = ["Ada is allergic to nuts.", "Ada's dog is called Rex."]
    model_server.queue(behave.memories({"stream": "session", "statements": [*map(item, lasting)]}))
    say(ada, "s1", "2025-01-10", " ".join(lasting))
    for day in range(11, 17):
        talk = [f"Ada saw rain on day {day}.", f"Ada had soup on day {day}."]
        model_server.queue(behave.memories({"stream": "session", "statements": [*map(item, talk)]}))
        say(ada, "s1", f"2025-01-{day}", " ".join(talk))
    kept = set(MemoryAtom.objects.active().values_list("content", flat=True))
    assert len(kept) == 14 and kept >= {*lasting, *talk}
