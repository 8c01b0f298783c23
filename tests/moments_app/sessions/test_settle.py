"""Settling: a session that simply stops is still remembered and cleared."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import run_job
from moments_app.models import Job, MemoryAtom, Moment, Summary
from moments_app.provenance.coverage import coverage
from moments_app.sessions import sweep as compaction
from moments_app.sessions.settle import Settle
from moments_app.sessions.sweep import compact_sessions
from sessions_app.models import Event, Session, UserProfile
from sessions_app.retention.retain import retain
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import at_once
from tests.support.jobs import assert_each_compacted_turn_is_in_exactly_one_moment, build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form
from tests.support.transcript import arrived_when_said, talk, turns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "rolling")]


def settle(session: Session, **asked: Any) -> Job:
    job = run_job(Job.objects.request(Settle.name, session, requested_by="test", **asked).job_id)
    assert job is not None
    session.refresh_from_db()
    return job


def checkpoint(session: Session) -> dict[str, Any]:
    payload: dict[str, Any] | None = session.messages.partitions().order_by("-sequence", "-id")[0].payload
    assert payload is not None
    return payload


def with_statements(**texts: str) -> behave.Behaviour:
    """Return the correct answer with these statements of the session by kind."""
    return with_items(*(f"{kind} 0: {text}" for kind, text in texts.items()))


def with_items(*items: str) -> behave.Behaviour:
    """Return the correct answer with these items of the session's stream."""

    def behaviour(handler: behave.Handler, body: dict[str, Any]) -> None:
        answer = behave.right_answer(body)
        answer["memories"] = {"streams": [{"stream": "session", "statements": list(items)}]}
        handler.complete(json.dumps(answer))

    return behaviour


class TestAQuietSession:
    """Settling a quiet session brings all memory up to date."""

    @pytest.mark.slow
    def test_settling_writes_moments_memories_and_a_checkpoint_as_summary(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 9)
        job = settle(session)
        assert job.status == Job.Status.COMPLETED, job.error
        assert (session.status, session.live_count, session.live_tokens) == ("cleared", 0, 0)
        assert session.last_moment_message_idx == session.last_formation_sequence == session.summarised_sequence == 8
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert MemoryAtom.objects.filter(source_session=session).exists()
        assert not Summary.objects.completed().exists()
        assert session.messages.partitions().count() == 1
        told = checkpoint(session)
        assert (told["partition_type"], told["first_sequence"], told["last_sequence"]) == ("session_cleared", 0, 8)
        assert told["context"]
        assert told["last_n_moment_keys"] == list(Moment.objects.newest_first().values_list("key", flat=True))
        assert Event.objects.filter(type="session_settled", session_pk=session.pk).exists()

    @pytest.mark.slow
    def test_a_later_load_begins_with_the_checkpoint(
        self, service: Api, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 9)
        settle(session)
        append(ada, "s1", [NewMessage("user", "I am back.")])
        loaded = service.get("sessions/s1/messages", user_id="ada").json()["messages"]
        assert [(m["kind"], m["role"], m["sequence"]) for m in loaded] == [
            ("partition", "system", 8),
            ("turn", "user", 9),
        ]
        session.refresh_from_db()
        assert session.status == "active"

    def test_settling_works_without_a_model(self, ada: UserProfile) -> None:
        session = talk(ada, 9)
        assert settle(session).status == Job.Status.COMPLETED
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert "kiln" in checkpoint(session)["context"]

    @pytest.mark.slow
    def test_earlier_moments_stay(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        session = talk(ada, 60)
        build(session)
        before = list(Moment.objects.values_list("key", flat=True))
        settle(session)
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert set(before) < set(Moment.objects.values_list("key", flat=True))
        assert checkpoint(session)["first_sequence"] == 42

    @pytest.mark.slow
    def test_settling_continues_an_earlier_digest(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        session = talk(ada, 9)
        run_job(Job.objects.request("digest_session", session, requested_by="test", force=True).job_id)
        settle(session)
        assert session.status == "cleared"
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert checkpoint(session)["context"].startswith("Last said: Turn 8")

    @pytest.mark.slow
    def test_an_unanswered_tool_call_is_covered(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        call = NewMessage("assistant", payload={"tool_calls": [{"id": "c1", "function": {"name": "look"}}]})
        append(ada, "s1", [*turns(5), call])
        Session.objects.update(last_arrived_at=timezone.now() - timedelta(hours=1))
        session = Session.objects.get()
        assert settle(session).status == Job.Status.COMPLETED
        assert (session.last_moment_message_idx, session.live_count) == (5, 0)

    def test_final_system_turns_belong_to_the_last_moment(self, ada: UserProfile) -> None:
        said = [*turns(5), NewMessage("system", "Be kind.", created_at=turns(1)[0].created_at)]
        session = arrived_when_said(append(ada, "s1", said).session)
        assert settle(session).status == Job.Status.COMPLETED
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert session.last_moment_message_idx == 5

    @pytest.mark.slow
    def test_more_turns_than_one_call_takes_are_settled_in_parts(
        self, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.sessions.quiet_sessions.MAX_TURNS", 30)
        session = talk(ada, 100)
        assert settle(session).status == Job.Status.COMPLETED
        assert (session.status, session.last_moment_message_idx, session.last_formation_sequence) == ("active", 29, 29)
        work_off()
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert (session.status, session.built_to, session.formed_to) == ("cleared", 99, 99)
        assert session.messages.partitions().count() == 1

    @pytest.mark.slow
    def test_the_checkpoint_has_new_moments_and_the_last_round_without_another_call(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 60)
        build(session)
        model_server.requests.clear()
        model_server.queue(with_statements(problem="The kiln is broken.", lesson="Ask for the kiln's model first."))
        settle(session)
        assert len(model_server.requests) == 1
        told = checkpoint(session)
        new = session.moments.filter(first_sequence__gte=42).order_by("first_sequence")
        before = session.moments.filter(first_sequence__lt=42).earliest("first_sequence")
        lines = told["context"].splitlines()
        assert lines[0] == f"{before.ends_at:%Y-%m-%d}: {before.summary}"
        assert lines[-3:] == [
            "Open: The kiln is broken.",
            f"Last said by user: {session.messages.turns().get(sequence=58).content}",
            f"Last said by assistant: {session.messages.turns().get(sequence=59).content}",
        ]
        assert [line for moment in new for line in lines if line.endswith(moment.detail)] == lines[-3 - len(new) : -3]
        assert told["lessons"] == ["Ask for the kiln's model first."]
        assert session.live_from_sequence == 60

    @pytest.mark.slow
    def test_the_checkpoint_has_open_entities_of_earlier_formations(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        def answer(handler: behave.Handler, body: dict[str, Any]) -> None:
            found = re.search(r'"(\d+)": "Order a new felt\.', body["messages"][1]["content"])
            assert found
            ended = f"event 1 ends {found[1]},A: The kiln has glaze."
            new = "task 0: Pay the rent of the shop.", "problem 0 as A: The kiln has no glaze."
            with_items(*new, ended)(handler, body)

        session = talk(ada, 20)
        model_server.queue(with_items("problem 0: The kiln is broken.", "task 1: Order a new felt."))
        form(session)
        talk(ada, 6, days=0.1)
        model_server.queue(answer)
        settle(session)
        opened = [line for line in checkpoint(session)["context"].splitlines() if line.startswith("Open: ")]
        assert opened == ["Open: The kiln is broken.", "Open: Pay the rent of the shop."]

    def test_the_checkpoint_has_the_later_of_two_tasks_that_end_each_other(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 6)
        earlier, later = "task 1 as A ends B: Order a blue felt.", "task 3 as B ends A: Order a green felt."
        model_server.queue(with_items(later, earlier))
        settle(session)
        current = MemoryAtom.objects.active().filter(kind="task").values_list("content", flat=True)
        opened = [line for line in checkpoint(session)["context"].splitlines() if line.startswith("Open: ")]
        assert list(current) == ["Order a green felt."]
        assert opened == ["Open: Order a green felt."]

    @pytest.mark.slow
    def test_the_checkpoint_omits_entities_from_before_the_live_window(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 40)
        model_server.queue(with_items("problem 0: The kiln is broken.", "task 39: Order a new felt."))
        form(session)
        build(session)
        settle(session)
        lines = checkpoint(session)["context"].splitlines()
        assert [line for line in lines if line.startswith("Open: ")] == ["Open: Order a new felt."]

    def test_a_lesson_is_stored_only_for_the_person(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        model_server.queue(with_statements(lesson="Ask for the kiln's model first."))
        job = settle(talk(ada, 9))
        assert job.result["memories_formed"]["lessons"] == 1
        learned = MemoryAtom.objects.filter(content="Ask for the kiln's model first.")
        assert {(atom.stream.name, atom.kind, atom.is_candidate) for atom in learned} == {("lessons", "lesson", True)}
        assert learned.count() == 2  # in the shard of this agent, and of all agents


class TestWhichSessions:
    """Quiet sessions are settled, each once."""

    def test_idle_sessions_are_settled_however_short(self, ada: UserProfile) -> None:
        talk(ada, 4, session_id="quiet")
        talk(ada, 1, session_id="short")
        append(ada, "active", [NewMessage("user", "Now.")] * 9)
        assert compact_sessions(dry_run=True).settled == 2
        assert not Job.objects.exists()
        assert compact_sessions().settled == 2
        work_off()
        assert dict(Session.objects.values_list("session_id", "status")) == {
            "quiet": "cleared",
            "short": "cleared",
            "active": "active",
        }
        assert compact_sessions().settled == 0

    def test_the_idle_time_can_be_seconds(self, ada: UserProfile, settings: Settings) -> None:
        append(ada, "s1", [NewMessage("user", "Now.")] * 4)
        Session.objects.update(last_arrived_at=timezone.now() - timedelta(seconds=3))
        assert compact_sessions(dry_run=True).settled == 0
        settings.SESSION_COMPACTION = settings.SESSION_COMPACTION.model_copy(update={"inactive_after_minutes": 0.02})
        assert compact_sessions(dry_run=True).settled == 1

    def test_a_digested_session_without_moments_is_settled(self, ada: UserProfile) -> None:
        session = talk(ada, 9)
        run_job(Job.objects.request("digest_session", session, requested_by="test", force=True).job_id)
        assert compact_sessions(dry_run=True).settled == 1

    def test_a_forced_settling_accepts_few_turns_but_requires_idleness(self, ada: UserProfile) -> None:
        assert settle(talk(ada, 1), force=True).status == Job.Status.COMPLETED
        append(ada, "s2", [NewMessage("user", "Now.")])
        assert settle(Session.objects.get(session_id="s2"), force=True).status == Job.Status.SKIPPED

    @pytest.mark.slow
    def test_row_6_two_concurrent_runs_queue_each_session_once(self, ada: UserProfile) -> None:
        for number in range(250):
            talk(ada, 4, session_id=f"s{number}")
        asked = [compacted.settled for compacted in at_once(lambda _: compact_sessions(), 2)]
        assert sum(asked) >= 250
        assert Job.objects.filter(process=Settle.name).count() == 250

    def test_locked_sessions_are_skipped(self, ada: UserProfile) -> None:
        talk(ada, 4, session_id="a")
        talk(ada, 4, session_id="b")
        with transaction.atomic():
            Session.objects.locked().get(session_id="a")
            [asked] = at_once(lambda _: compact_sessions(), 1)
        assert asked.settled == 1
        assert Job.objects.get().session == Session.objects.get(session_id="b")

    def test_each_batch_takes_one_query(self, ada: UserProfile, django_assert_num_queries: Any) -> None:
        for number in range(5):
            talk(ada, 4, session_id=f"s{number}")
        with django_assert_num_queries(2 * 3) as queries:  # BEGIN, query and COMMIT, and again to find no more
            for batch in compaction._batches(Session.objects.quiet()):
                assert len(batch) == 5
        assert sum("FOR NO KEY UPDATE" in query["sql"] for query in queries.captured_queries) == 2


class TestFailure:
    """A failed settling is reported and does not change the session."""

    @pytest.mark.slow
    def test_nothing_is_written_before_the_model_answers(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        session = talk(ada, 9)
        model_server.always(behave.error(500))
        job = settle(session)
        assert (job.status, job.attempts) == (Job.Status.QUEUED, 1)
        assert "status 500" in job.error
        assert (session.status, session.live_count) == ("active", 9)
        assert session.last_sequence - session.built_to == 9
        assert not MemoryAtom.objects.exists()
        work_off()
        assert Job.objects.get(process=Settle.name).status == Job.Status.FAILED
        model_server.always(behave.answer_well)
        compact_sessions()
        work_off()
        session.refresh_from_db()
        assert session.status == "cleared"
        assert_each_compacted_turn_is_in_exactly_one_moment(session)

    @pytest.mark.slow
    def test_a_session_that_becomes_active_is_not_changed(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        session = talk(ada, 9)

        def wake(handler: Any, body: Any) -> None:
            if "Recent moments" in body["messages"][1]["content"]:
                append(ada, "s1", [NewMessage("user", "I am back.")])
            behave.answer_well(handler, body)

        model_server.always(wake)
        settle(session)
        work_off()
        session.refresh_from_db()
        assert (session.status, session.live_count) == ("active", 10)
        assert Job.objects.get(process=Settle.name).status == Job.Status.SKIPPED

    def test_row_17_no_connection_is_held_during_a_digest_call(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 9)
        held: list[bool] = []

        def look(handler: Any, body: Any) -> None:
            held.append(main.connection is not None)
            behave.answer_well(handler, body)

        main = connections["default"]
        model_server.always(look)
        settle(session)
        assert held
        assert not any(held)


class TestTurnsPastTheirKeepByDate:
    """Turns past their retention period are settled before they are deleted."""

    @pytest.fixture(autouse=True)
    def _archives(self, settings: Settings, tmp_path: Path) -> None:
        settings.STORAGES = settings.STORAGES | {"archive": settings.RETENTION.storage(tmp_path)}

    @pytest.mark.slow
    def test_uncovered_turns_are_settled_first_and_archived_in_the_next_run(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 2)
        Job.objects.all().delete()
        first = retain()
        assert (first.archived_turns, first.overdue_sessions) == (0, 1)
        work_off()
        session.refresh_from_db()
        assert session.status == "cleared"
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert retain().archived_turns == 2
        assert not session.messages.turns().exists()
        assert (coverage().archived, coverage().is_whole) == (2, True)

    @pytest.mark.slow
    def test_a_session_continues_after_all_its_turns_were_archived(
        self, service: Api, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 9)
        settle(session)
        assert retain().archived_turns == 9
        append(ada, "s1", [NewMessage("user", "I am back."), NewMessage("assistant", "Welcome.")] * 5)
        loaded = service.get("sessions/s1/messages", user_id="ada").json()["messages"]
        assert [m["sequence"] for m in loaded] == [8, *range(9, 19)]
        context = service.get("memory/context", user_id="ada", session_id="s1", query="Hi").json()["context"]
        assert "Welcome." in context
        work_off()
        Session.objects.update(last_arrived_at=timezone.now() - timedelta(hours=1))
        compact_sessions()
        work_off()
        session.refresh_from_db()
        assert (session.status, session.last_moment_message_idx) == ("cleared", 18)
        assert coverage().is_whole
