"""Formation drafts the episodes of its turns, and a build publishes them without reading the turns again."""

import json
from typing import Any

import pytest
from django.db import IntegrityError
from django.db.models import Max
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import run_job
from moments_app.models import EpisodeDraft, Job, MemoryAtom, MemoryStream, Moment
from moments_app.provenance.correct import correct, end_request, undo_correction
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.sessions.settle import Settle
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import append
from tests.support import openai_server as behave
from tests.support.concurrency import on_its_own_connection
from tests.support.jobs import assert_chain_is_whole, assert_each_compacted_turn_is_in_exactly_one_moment, build
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form, note
from tests.support.transcript import talk, turns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def chats(server: OpenAIServer) -> list[dict[str, Any]]:
    """The requests to the language model."""
    return [body for body in server.requests if "input" not in body]


def read(server: OpenAIServer) -> list[str]:
    """Return the text of each turn in the requests, including repetitions."""
    return [turn["text"] for body in chats(server) for turn in behave.turns_of(body)]


def drafts() -> list[tuple[int, int]]:
    """Return the ranges of drafts."""
    return list(EpisodeDraft.objects.order_by("first_sequence").values_list("first_sequence", "last_sequence"))


@pytest.mark.slow
def test_one_call_reads_turns_for_statements_and_moments(ada: UserProfile, model_server: OpenAIServer) -> None:
    for number in range(3):
        session = talk(ada, 40, days=number / 100)
        assert form(session).status == "completed"
    assert build(session).status == "completed"
    assert sorted(read(model_server)) == sorted(session.messages.turns().values_list("content", flat=True))
    session.refresh_from_db()
    assert Moment.objects.filter(source_session=session).exists() and MemoryAtom.objects.exists()
    assert_each_compacted_turn_is_in_exactly_one_moment(session)
    assert_chain_is_whole(ada)


@pytest.mark.slow
def test_a_draft_that_crosses_the_lag_is_split(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 50)
    job = form(session)
    assert drafts() == [(0, 19), (20, 39), (40, 49)]
    build(session)  # the lag is 15 turns
    session.refresh_from_db()
    assert (session.built_to, drafts()) == (34, [(35, 39), (40, 49)])
    moments = session.moments.order_by("first_sequence")
    assert list(moments.values_list("first_sequence", "last_sequence")) == [(0, 19), (20, 34)]
    assert {(moment.job, moment.engine) for moment in moments} == {(job, "openai:gpt-4.1-mini")}
    append(ada, "s1", turns(50, first=50))
    form(session)
    build(session, lag=0)
    session.refresh_from_db()
    assert (session.built_to, drafts()) == (99, [])
    assert len(chats(model_server)) == 2
    assert_each_compacted_turn_is_in_exactly_one_moment(session)


@pytest.mark.slow
def test_a_build_sends_only_turns_that_no_formation_has_read(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 20)
    form(session)
    append(ada, "s1", turns(10, first=20))
    job = build(session, lag=0)
    assert job.result["engine_calls"] == 1
    [asked] = chats(model_server)[1:]
    assert [turn["text"] for turn in behave.turns_of(asked)] == list(
        session.messages.turns().filter(sequence__gte=20).order_by("sequence").values_list("content", flat=True)
    )
    assert_each_compacted_turn_is_in_exactly_one_moment(Session.objects.get())


def with_a_gap(user: UserProfile) -> Session:
    """Return a session of 40 turns that are all formed, where only the last 20 have a draft."""
    session = talk(user, 20)
    form(session)
    EpisodeDraft.objects.all().delete()
    append(user, "s1", turns(20, first=20))
    form(session)
    return session


def text_of(session: Session, *, before: int) -> list[str]:
    """Return the texts of the turns before a sequence, in order."""
    said = session.messages.turns().filter(sequence__lt=before).order_by("sequence")
    return list(said.values_list("content", flat=True))


@pytest.mark.slow
def test_a_build_sends_turns_of_a_gap_before_a_draft(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = with_a_gap(ada)
    assert drafts() == [(20, 39)]
    model_server.requests.clear()
    job = build(session, lag=0)
    assert job.result["engine_calls"] == 1
    assert read(model_server) == text_of(session, before=20)
    moments = session.moments.order_by("first_sequence")
    assert list(moments.values_list("first_sequence", "last_sequence")) == [(0, 19), (20, 39)]
    assert_each_compacted_turn_is_in_exactly_one_moment(Session.objects.get())


@pytest.mark.slow
def test_a_digest_sends_turns_of_a_gap_before_a_draft(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = with_a_gap(ada)
    model_server.requests.clear()
    run_job(Job.objects.request("digest_session", session, requested_by="test", force=True).job_id)
    assert read(model_server) == text_of(session, before=20)


@pytest.mark.slow
@pytest.mark.parametrize("is_undone", [False, True])
def test_a_draft_is_not_stored_if_a_correction_preceded_it(
    ada: UserProfile, model_server: OpenAIServer, is_undone: bool
) -> None:
    fact = note(MemoryStream.objects.ensure_of_person(ada, "default"), "Keeps bees.", "fact")
    earlier = correct(fact, end_request(), requested_by="test") if is_undone else None

    def change() -> None:
        if earlier:
            undo_correction(earlier, requested_by="test")
        else:
            correct(fact, end_request(), requested_by="test")

    def meanwhile(handler: behave.Handler, body: dict[str, Any]) -> None:
        on_its_own_connection(change)
        behave.answer_well(handler, body)

    model_server.queue(meanwhile)
    session = talk(ada, 20)
    assert form(session).status == "completed"
    assert drafts() == []
    append(ada, "s1", turns(20, first=20))
    form(session)
    assert drafts() == [(20, 39)]


@pytest.mark.slow
def test_a_settling_publishes_drafts_and_sends_the_remaining_turns(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 20)
    form(session)
    talk(ada, 6, days=0.1)
    job = run_job(Job.objects.request(Settle.name, session, requested_by="test", force=True).job_id)
    assert job is not None and job.status == "completed"
    assert sorted(read(model_server)) == sorted(session.messages.turns().values_list("content", flat=True))
    session.refresh_from_db()
    assert (session.status, drafts()) == ("cleared", [])
    assert_each_compacted_turn_is_in_exactly_one_moment(session)


@pytest.mark.slow
def test_a_digest_sends_only_turns_without_drafts(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 20)
    form(session)
    append(ada, "s1", turns(4, first=20))
    model_server.requests.clear()
    run_job(Job.objects.request("digest_session", session, requested_by="test", force=True).job_id)
    [asked] = chats(model_server)
    assert [turn["index"] for turn in behave.turns_of(asked)] == [20, 21, 22, 23]
    assert EpisodeDraft.objects.get().summary in json.loads(
        asked["messages"][1]["content"].splitlines()[0].partition(": ")[2]
    )


@pytest.mark.slow
def test_builds_read_the_turns_without_a_model_or_combined_calls(
    ada: UserProfile, bo: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"combines_calls": False})
    session = talk(ada, 20)
    form(session)
    assert not EpisodeDraft.objects.exists()
    build(session, lag=0)
    assert len(chats(model_server)) == 2


@pytest.mark.slow
def test_row_3_invalid_episodes_are_requested_separately(ada: UserProfile, model_server: OpenAIServer) -> None:
    def without_moments(handler: behave.Handler, body: dict[str, Any]) -> None:
        answer = behave.right_answer(body)
        handler.complete(json.dumps({"memories": answer["memories"]}))

    model_server.queue(without_moments)
    session = talk(ada, 20)
    assert form(session).status == "completed"
    names = [body["response_format"]["json_schema"]["name"] for body in chats(model_server)]
    assert names == ["combined", "moment_builder"]
    assert drafts() == [(0, 19)]


@pytest.mark.slow
def test_row_3_statements_are_kept_without_valid_episodes_which_a_build_requests_again(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    def without_moments(handler: behave.Handler, body: dict[str, Any]) -> None:
        answer = behave.right_answer(body)
        handler.complete(json.dumps({} if "moments" in answer and "memories" not in answer else answer))

    def half(handler: behave.Handler, body: dict[str, Any]) -> None:
        handler.complete(json.dumps({"memories": behave.right_answer(body)["memories"]}))

    model_server.queue(half, without_moments, without_moments, without_moments)
    session = talk(ada, 20)
    assert form(session).status == "completed"
    assert MemoryAtom.objects.exists() and drafts() == []
    assert build(session, lag=0).status == "completed"
    assert_each_compacted_turn_is_in_exactly_one_moment(Session.objects.get())


def test_an_outage_during_the_call_for_episodes_fails_the_formation(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    def half(handler: behave.Handler, body: dict[str, Any]) -> None:
        handler.complete(json.dumps({"memories": behave.right_answer(body)["memories"]}))

    def out(handler: behave.Handler, body: dict[str, Any]) -> None:
        is_moments = body["response_format"]["json_schema"]["name"] == "moment_builder"
        (behave.error(503) if is_moments else behave.answer_well)(handler, body)

    model_server.queue(half)
    model_server.always(out)
    assert form(talk(ada, 20)).status == "queued"
    assert not MemoryAtom.objects.exists()


@pytest.mark.slow
def test_row_10_a_retraction_withdraws_drafts_and_an_undo_restores_them(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 30)
    form(session)
    before = list(EpisodeDraft.objects.order_by("pk").values())
    made = retract(session, [5], reason="planted", requested_by="test")
    assert not EpisodeDraft.objects.exists()
    undo_retraction(made, requested_by="test")
    assert list(EpisodeDraft.objects.order_by("pk").values()) == before
    build(session, lag=0)
    assert_each_compacted_turn_is_in_exactly_one_moment(Session.objects.get())


@pytest.mark.slow
def test_row_10_a_retraction_withdraws_all_moments_of_the_call_that_had_the_turn(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 50)
    form(session)
    build(session)
    build(session, lag=0)
    retract(Session.objects.get(), [49], reason="planted", requested_by="test")
    assert not Moment.objects.exists()  # all of them belong to one call


@pytest.mark.slow
def test_row_10_a_retraction_withdraws_a_moment_drafted_with_a_turn_that_is_not_built_yet(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 50)
    form(session)
    build(session)
    session.refresh_from_db()
    assert session.built_to == 34  # the draft of turns 20 to 39 ends there
    made = retract(session, [37], reason="planted", requested_by="test")
    assert not Moment.objects.exists()
    build(Session.objects.get(), lag=0)
    undo_retraction(made, requested_by="test")
    assert Moment.objects.aggregate(last=Max("last_sequence"))["last"] == 34
    assert_each_compacted_turn_is_in_exactly_one_moment(Session.objects.get())


@pytest.mark.slow
def test_row_10_undoing_a_retraction_removes_a_moment_that_was_drafted_without_the_turn(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 50)
    made = retract(session, [37], reason="planted", requested_by="test")
    form(Session.objects.get())
    build(Session.objects.get())
    assert Session.objects.get().built_to < 37 and Moment.objects.exists()
    undo_retraction(made, requested_by="test")
    assert not Moment.objects.exists()


@pytest.mark.slow
def test_row_9_drafts_are_visible_only_to_their_person(
    ada: UserProfile, bo: UserProfile, model_server: OpenAIServer
) -> None:
    for user in (ada, bo):
        form(talk(user, 6))
    for user in (ada, bo):
        with acting_for(user.user_id, application=DEFAULT):
            assert set(EpisodeDraft.objects.values_list("user_id", flat=True)) == {user.pk}


def test_the_database_rejects_invalid_and_duplicate_ranges(ada: UserProfile) -> None:
    session = talk(ada, 6)
    draft = {"user": ada, "session": session, "name": "a", "summary": "b", "engine": "c"}
    with pytest.raises(IntegrityError, match="episode_draft_range_in_order"):
        EpisodeDraft.objects.create(first_sequence=2, last_sequence=1, **draft)
    EpisodeDraft.objects.create(first_sequence=2, last_sequence=3, **draft)
    with pytest.raises(IntegrityError, match="episode_draft_unique"):
        EpisodeDraft.objects.create(first_sequence=2, last_sequence=4, **draft)
