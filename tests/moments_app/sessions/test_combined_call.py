"""What is due together when a session is settled is asked for in one call, and stored as if each had asked."""

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.engines import together
from moments_app.jobs.runner import run_job
from moments_app.models import EngineCall, Job, MemoryAtom, Moment, PromptResource
from moments_app.prompts import MEMORY_EXTRACTION_URI, MOMENT_BUILDER_URI, SESSION_DIGEST_URI
from moments_app.sessions.settle import Settle
from moments_app.streams.form import FormMemories
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.jobs import assert_each_compacted_turn_is_in_exactly_one_moment, work_off
from tests.support.openai_server import OpenAIServer, right_answer
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]
PURPOSES = ("moment-builder", "memory-extraction", "session-digest")


def settle(session: Session) -> Job:
    job = run_job(Job.objects.request(Settle.name, session, requested_by="test", force=True).job_id)
    assert job is not None
    session.refresh_from_db()
    return job


def asked_for(server: OpenAIServer) -> list[str]:
    """The purposes of the requests, in their order."""
    chats = [body for body in server.requests if "input" not in body]
    return [body["response_format"]["json_schema"]["name"].replace("_", "-") for body in chats]


def without(part: str, **other: Any) -> behave.Behaviour:
    """The right answer, with another value for a part, or none."""

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


def test_one_call_has_each_turn_once_and_its_parts_are_stored_under_the_prompts_in_force(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 9)
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == ["combined"]
    system, asked = (message["content"] for message in model_server.requests[0]["messages"])
    assert [turn["index"] for turn in behave.turns_of(model_server.requests[0])] == list(range(9))
    assert asked.count("Turn 5") == 1
    all_is_there(session)
    for uri in (MOMENT_BUILDER_URI, MEMORY_EXTRACTION_URI, SESSION_DIGEST_URI):
        version = PromptResource.objects.get(uri=uri).active_version
        assert version is not None
        assert version.content.strip() in system
        part = EngineCall.objects.get(prompt_version=version)
        assert (part.is_part, part.ok, part.input_tokens) == (True, True, None)
        assert part.kept_count > 0
    assert Moment.objects.get().prompt_version == PromptResource.objects.get(uri=MOMENT_BUILDER_URI).active_version
    [call] = EngineCall.objects.made()
    assert (call.purpose, call.input_tokens, call.job) == ("combined", 100, Job.objects.get(process=Settle.name))


@pytest.mark.slow
@pytest.mark.parametrize(("part", "bad"), [("memories", {"nonsense": 1}), ("moments", {}), ("digest", {})])
def test_row_3_a_bad_part_fails_alone_and_is_asked_for_by_itself(
    ada: UserProfile, model_server: OpenAIServer, part: str, bad: dict[str, Any]
) -> None:
    session = talk(ada, 9)
    model_server.queue(without(part, **({part: bad} if bad else {})))
    assert settle(session).status == Job.Status.COMPLETED
    purpose = dict(zip(("moments", "memories", "digest"), PURPOSES, strict=True))[part]
    assert asked_for(model_server) == ["combined", purpose]
    all_is_there(session)
    [failed] = EngineCall.objects.failed()
    assert (failed.purpose, failed.is_part, failed.error_kind) == (purpose, True, "invalid_answer")
    assert failed.prompt_version is not None


@pytest.mark.slow
@pytest.mark.parametrize("bad", [behave.error(500), behave.content("{}")])
def test_row_3_where_the_call_fails_each_asks_by_itself(
    ada: UserProfile, model_server: OpenAIServer, bad: behave.Behaviour
) -> None:
    session = talk(ada, 9)
    model_server.queue(bad)
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == ["combined", *PURPOSES]
    all_is_there(session)


def test_row_2_a_part_that_was_asked_about_something_else_by_now_is_not_used(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 9)

    def edit(handler: behave.Handler, body: dict[str, Any]) -> None:
        UserProfile.objects.filter(pk=ada.pk).update(summary="Ada is a potter.")
        behave.answer_well(handler, body)

    model_server.queue(edit)
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == ["combined", "moment-builder"]
    ada.refresh_from_db()
    assert "Ada is a potter." in ada.summary or "Spoke of" in ada.summary
    all_is_there(session)


@pytest.mark.slow
def test_row_5_what_was_stored_before_a_worker_died_is_not_asked_for_again(
    ada: UserProfile, model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    session = talk(ada, 9)
    with monkeypatch.context() as patch:
        patch.setattr(FormMemories, "commit", die)
        with pytest.raises(Killed):
            settle(session)
    Job.objects.open().update(status=Job.Status.QUEUED, run_after=timezone.now(), heartbeat_at=None)
    moments = list(Moment.objects.values_list("key", flat=True))
    work_off()
    session.refresh_from_db()
    assert list(Moment.objects.values_list("key", flat=True)) == moments
    assert asked_for(model_server) == ["combined", "combined"]
    assert "# moments" not in model_server.requests[1]["messages"][1]["content"]
    all_is_there(session)
    assert Counter(MemoryAtom.objects.values_list("stream", "content")).most_common(1)[0][1] == 1


@pytest.mark.slow
def test_turns_that_one_part_has_had_already_are_told_from_the_others(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 9)
    run_job(Job.objects.request(FormMemories.name, session, requested_by="test", force=True).job_id)
    append(ada, "s1", [NewMessage("user", "Also, the glaze is blue."), NewMessage("assistant", "Noted.")])
    Session.objects.update(last_arrived_at=timezone.now() - timedelta(hours=1))
    session.refresh_from_db()
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == ["memory-extraction", "combined"]
    memories = behave.parts_of(model_server.requests[1]["messages"][1]["content"])["memories"]
    assert "Turns: 9 to 10." in memories
    all_is_there(session)


def test_it_is_a_call_each_where_that_is_set(ada: UserProfile, model_server: OpenAIServer, settings: Settings) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"combines_calls": False})
    session = talk(ada, 9)
    assert settle(session).status == Job.Status.COMPLETED
    assert asked_for(model_server) == [*PURPOSES]
    all_is_there(session)


def test_sessions_that_are_settled_soon_are_not_formed_before(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    talk(ada, 9)
    Session.objects.update(last_arrived_at=timezone.now() - timedelta(minutes=15))
    formed = FormMemories()
    assert str(formed.sweep(dry_run=True)) == "asked for: 0"
    settings.SESSION_COMPACTION = settings.SESSION_COMPACTION.model_copy(update={"inactive_after_minutes": 600})
    assert str(formed.sweep(dry_run=True)) == "asked for: 1"
    settings.SESSION_COMPACTION = settings.SESSION_COMPACTION.model_copy(update={"inactive_after_minutes": 30})
    Session.objects.update(last_arrived_at=timezone.now() - timedelta(hours=9))
    assert str(formed.sweep(dry_run=True)) == "asked for: 1"


def test_answers_wait_for_the_job_that_asked_and_for_nobody_after_it() -> None:
    with together.answers_kept():
        kept = together.answers_that_wait()
        with together.answers_kept():
            assert together.answers_that_wait() is kept
    assert together.answers_that_wait() is not kept
