"""Settling a session combines all due requests in one call. The results are stored as if requested separately."""

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import run_job
from moments_app.models import EngineCall, Job, MemoryAtom, Moment, PromptResource
from moments_app.prompts import MEMORY_EXTRACTION_URI, MOMENT_BUILDER_URI
from moments_app.sessions.settle import Settle
from moments_app.streams.form import FormMemories
from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.jobs import assert_chain_is_whole, assert_each_compacted_turn_is_in_exactly_one_moment, work_off
from tests.support.openai_server import OpenAIServer, right_answer
from tests.support.transcript import arrived_when_said, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]
PURPOSES = ("moment-builder", "memory-extraction")


def settle(session: Session) -> Job:
    job = run_job(Job.objects.request(Settle.name, session, requested_by="test", force=True).job_id)
    assert job is not None
    session.refresh_from_db()
    return job


def asked_for(server: OpenAIServer) -> list[str]:
    """Return the purposes of the requests, in order."""
    chats = [body for body in server.requests if "input" not in body]
    return [body["response_format"]["json_schema"]["name"].replace("_", "-") for body in chats]


def without(part: str, **other: Any) -> behave.Behaviour:
    """Return the correct answer with one part replaced or missing."""

    def behaviour(handler: behave.Handler, body: dict[str, Any]) -> None:
        answer = right_answer(body)
        answer.pop(part)
        handler.complete(json.dumps(answer | other))

    return behaviour


def all_is_there(session: Session) -> None:
    assert_each_compacted_turn_is_in_exactly_one_moment(session)
    assert session.status == "cleared"
    assert session.formed_message_count == session.message_count
    assert MemoryAtom.objects.filter(source_session=session).exists()


def test_one_call_has_each_turn_once_and_each_part_records_its_prompt(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 9)
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == ["combined"]
    system, asked = (message["content"] for message in model_server.requests[0]["messages"])
    assert [turn["index"] for turn in behave.turns_of(model_server.requests[0])] == list(range(9))
    assert asked.count("Turn 5") == 1
    all_is_there(session)
    for uri in (MOMENT_BUILDER_URI, MEMORY_EXTRACTION_URI):
        version = PromptResource.objects.get(uri=uri).active_version
        assert version is not None
        assert version.content.strip() in system
        part = EngineCall.objects.get(prompt_version=version)
        assert (part.is_part, part.ok, part.input_tokens) == (True, True, None)
        assert part.kept_count > 0
    assert Moment.objects.get().prompt_version == PromptResource.objects.get(uri=MOMENT_BUILDER_URI).active_version
    [call] = EngineCall.objects.without_parts()
    assert (call.purpose, call.input_tokens, call.job) == ("combined", 100, Job.objects.get(process=Settle.name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "bad"),
    [("memories", {"nonsense": 1}), ("memories", {"nonsense": json.loads("[" * 600 + "]" * 600)}), ("moments", {})],
    ids=["wrong", "nested", "missing"],
)
def test_row_3_an_invalid_part_fails_alone_and_is_requested_separately(
    ada: UserProfile, model_server: OpenAIServer, part: str, bad: dict[str, Any]
) -> None:
    session = talk(ada, 9)
    model_server.queue(without(part, **({part: bad} if bad else {})))
    assert settle(session).status == Job.Status.COMPLETED
    purpose = dict(zip(("moments", "memories"), PURPOSES, strict=True))[part]
    assert asked_for(model_server) == ["combined", purpose]
    all_is_there(session)
    [failed] = EngineCall.objects.failed()
    assert (failed.purpose, failed.is_part, failed.error_kind) == (purpose, True, "invalid_answer")
    assert failed.prompt_version is not None


@pytest.mark.slow
@pytest.mark.parametrize("bad", [behave.error(500), behave.content("{}")])
def test_row_3_after_a_failed_call_each_part_is_requested_separately(
    ada: UserProfile, model_server: OpenAIServer, bad: behave.Behaviour
) -> None:
    session = talk(ada, 9)
    model_server.queue(bad)
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == ["combined", *PURPOSES]
    all_is_there(session)


@pytest.mark.slow
def test_row_5_a_worker_that_dies_before_the_commit_leaves_nothing_and_all_is_stored_once(
    ada: UserProfile, model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    session = talk(ada, 9)
    with monkeypatch.context() as patch:
        patch.setattr("moments_app.sessions.settle._log_events", die)  # the last step of the commit
        with pytest.raises(Killed):
            settle(session)
    session.refresh_from_db()
    assert (session.status, session.last_sequence - session.built_to) == ("active", 9)
    assert not Moment.objects.exists()
    assert not MemoryAtom.objects.exists()
    Job.objects.open().update(status=Job.Status.QUEUED, run_after=timezone.now(), heartbeat_at=None)
    work_off()
    session.refresh_from_db()
    assert asked_for(model_server) == ["combined", "combined"]
    all_is_there(session)
    assert Counter(MemoryAtom.objects.values_list("stream", "content")).most_common(1)[0][1] == 1


@pytest.mark.slow
def test_turns_that_one_part_has_read_already_are_marked(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    session = talk(ada, 9)
    combined = settings.ENGINE
    settings.ENGINE = combined.model_copy(update={"combines_calls": False})
    run_job(Job.objects.request(FormMemories.name, session, requested_by="test", force=True).job_id)
    settings.ENGINE = combined
    append(ada, "s1", [NewMessage("user", "Also, the glaze is blue."), NewMessage("assistant", "Noted.")])
    Session.objects.update(last_arrived_at=timezone.now() - timedelta(hours=1))
    session.refresh_from_db()
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == ["memory-extraction", "combined"]
    memories = behave.parts_of(model_server.requests[1]["messages"][1]["content"])["memories"]
    assert "Turns: 9 to 10." in memories
    all_is_there(session)


def test_parts_are_separate_calls_if_combining_is_off(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"combines_calls": False})
    session = talk(ada, 9)
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == [*PURPOSES]
    all_is_there(session)


def test_sessions_that_are_settled_soon_are_not_formed_first(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    talk(ada, 9)
    Session.objects.update(last_arrived_at=timezone.now() - timedelta(minutes=15))
    formed = FormMemories()
    assert str(formed.sweep(dry_run=True)) == "jobs: 0"
    settings.SESSION_COMPACTION = settings.SESSION_COMPACTION.model_copy(update={"inactive_after_minutes": 600})
    assert str(formed.sweep(dry_run=True)) == "jobs: 1"
    settings.SESSION_COMPACTION = settings.SESSION_COMPACTION.model_copy(update={"inactive_after_minutes": 30})
    Session.objects.update(last_arrived_at=timezone.now() - timedelta(hours=9))
    assert str(formed.sweep(dry_run=True)) == "jobs: 1"


def many(user: UserProfile, count: int) -> list[Session]:
    """Queue the settling of small sessions."""
    sessions = [talk(user, 4, session_id=f"s{number}", days=number) for number in range(count)]
    for session in sessions:
        Job.objects.request(Settle.name, session, requested_by="test")
    return sessions


def all_are_there(sessions: list[Session]) -> None:
    for session in sessions:
        session.refresh_from_db()
        all_is_there(session)


@pytest.mark.slow
def test_small_sessions_of_a_person_share_one_call_with_known_statements_once(
    ada: UserProfile, bo: UserProfile, model_server: OpenAIServer
) -> None:
    sessions = [*many(ada, 5), *many(bo, 1)]
    work_off()
    assert asked_for(model_server) == ["combined", "combined"]
    system, asked = (message["content"] for message in model_server.requests[0]["messages"])
    assert [turn["index"] for turn in behave.turns_of(model_server.requests[0])] == list(range(20))
    assert (
        system.count("# memories"),
        asked.count("Recent moments, newest first: "),
        asked.count('"stream": "user"'),
    ) == (1, 1, 1)
    all_are_there(sessions)
    for derived in (*Moment.objects.all(), *MemoryAtom.objects.exclude(source_session=None)):
        assert derived.job is not None
        assert derived.job.session_id == derived.source_session_id
    for atom in MemoryAtom.objects.filter(stream__stream_type="session"):
        held = Message.objects.filter(pk__in=atom.source_message_ids)
        assert held.exists()
        assert not held.exclude(session=atom.source_session_id).exists()
    assert_chain_is_whole(ada)


@pytest.mark.slow
def test_row_3_after_a_failed_shared_call_the_first_session_is_requested_alone(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    sessions = many(ada, 3)

    def fail_on_several(handler: behave.Handler, body: dict[str, Any]) -> None:
        answer = behave.error(500) if "moments_2" in str(body) else behave.answer_well
        answer(handler, body)

    model_server.always(fail_on_several)
    work_off()
    assert asked_for(model_server)[:2] == ["combined", "combined"]
    all_are_there(sessions)


@pytest.mark.slow
def test_row_3_an_invalid_part_of_a_later_session_does_not_affect_others(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    sessions = many(ada, 3)
    model_server.queue(without("moments_2"), behave.error(500))
    work_off()
    assert asked_for(model_server) == ["combined", "moment-builder", "combined"]
    all_are_there(sessions)


@pytest.mark.slow
def test_a_statement_ends_one_of_an_earlier_session_of_the_same_call(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    said = ("I have a boat.", "I sold the boat. I have a car.", "I sold the car and left town.", "I sold the bike.")
    for number, text in enumerate(said):
        at = timezone.now() - timedelta(days=9 - number)
        session = arrived_when_said(append(ada, f"s{number}", [NewMessage("user", text, created_at=at)]).session)
        Job.objects.request(Settle.name, session, requested_by="test")
    lines = (
        ["other 0 as A: User has a boat.", "home 0 as T: User has town."],
        ["event 1 ends A: User sold the boat.", "other 1 as B: User has a car.", "event 1 as T: User sold."],
        ["event 2 as B ends B: User left town.", "event 2 ends T: User sold the car and left town."],
        # The item with the letter is dropped, because nobody mentioned Zanzibar.
        ["other 3 as A: User has a bike in Zanzibar.", "event 3 ends A: User sold the bike."],
    )
    names = ("memories", "memories_2", "memories_3", "memories_4")
    parts = {
        name: {"streams": [{"stream": "user", "statements": of_session}]}
        for name, of_session in zip(names, lines, strict=True)
    }

    def answer(handler: behave.Handler, body: dict[str, Any]) -> None:
        handler.complete(json.dumps(right_answer(body) | parts))

    model_server.queue(answer)
    work_off()
    assert asked_for(model_server) == ["combined"]
    ended = MemoryAtom.objects.filter(state="ended")
    assert dict(ended.values_list("content", "replaced_by__content")) == {"User has a boat.": "User sold the boat."}
    results = [job.result["memories_formed"] for job in Job.objects.filter(process=Settle.name).order_by("session_id")]
    assert [one["dropped"].get("ends what is not listed", 0) for one in results] == [0, 0, 2, 1]


@pytest.mark.slow
def test_names_from_another_session_of_the_call_count_as_mentioned(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    for number, text in enumerate(("Here I am again: Marit, the one with the kiln.", "The kiln cracked today.")):
        at = timezone.now() - timedelta(days=9 - number)
        session = arrived_when_said(append(ada, f"s{number}", [NewMessage("user", text, created_at=at)]).session)
        Job.objects.request(Settle.name, session, requested_by="test")

    def answer(handler: behave.Handler, body: dict[str, Any]) -> None:
        parts = right_answer(body)
        parts["moments_2"]["moments"][0]["summary"] = "The kiln of Marit cracked."
        lines = ["event 1: The kiln of Marit cracked.", "event 1: The kiln of Ottilie cracked."]
        parts["memories_2"] = {"streams": [{"stream": "user", "statements": lines}]}
        handler.complete(json.dumps(parts))

    model_server.queue(answer)
    work_off()
    assert asked_for(model_server) == ["combined"]
    assert Moment.objects.filter(summary="The kiln of Marit cracked.").exists()
    found = MemoryAtom.objects.filter(content__startswith="The kiln of", position=None)
    assert list(found.values_list("content", flat=True)) == ["The kiln of Marit cracked."]
