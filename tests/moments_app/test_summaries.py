"""Rolling summaries: the turns that a version covers, its sources, and that at most one is in progress."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.conf import RollingSummarySettings
from moments_app.context import receipts
from moments_app.jobs.runner import run_claimed, run_job
from moments_app.jobs.worker import recover_jobs
from moments_app.models import Job, Summary
from moments_app.models.summary import PROCESS, WINDOW
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.models.session import NamedSession
from sessions_app.transcript.append import Batch, NewMessage, append, append_many
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import at_once, wait_until_somebody_waits
from tests.support.jobs import queued_job_ids, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.tables import rows_read
from tests.support.transcript import messages, turns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rolling")]


def post_round(user: UserProfile, number: int, session_id: str = "s1") -> Session:
    """Append the user turn and the assistant turn of a round, counted from 0, separately."""
    for turn in turns(2, first=2 * number):
        session = append(user, session_id, [turn]).session
    return session


def run_next() -> Job:
    """Run one job of the queue."""
    job = run_job(queued_job_ids()[0])
    assert job is not None
    return job


def versions() -> list[tuple[int, int, str]]:
    return list(Summary.objects.order_by("id").values_list("start_sequence", "end_sequence", "status"))


class TestRange:
    """The turns that a version covers."""

    @pytest.mark.parametrize("earlier", [0, 10, 14])
    def test_the_range_begins_with_a_user_turn_if_turns_do_not_alternate(self, ada: UserProfile, earlier: int) -> None:
        kinds = ["user", "assistant", "assistant", "tool", "tool", "user", "user", "assistant"] * 3
        said = [NewMessage(kind, f"turn {n}") for n, kind in enumerate(kinds)]
        for turn in said[:earlier]:
            append(ada, "s1", [turn])
        Summary.objects.all().delete()
        session = append(ada, "s1", said[earlier:]).session
        summary = Summary.objects.get()
        # Of 24 turns, the window would start at 10, but that is an assistant turn. The next user turn is 13.
        assert (session.last_sequence, summary.start_sequence, summary.end_sequence) == (23, 13, 23)

    def test_without_user_turns_the_range_begins_with_the_window(self, ada: UserProfile) -> None:
        append(ada, "s1", [NewMessage("assistant", f"turn {n}") for n in range(20)])
        assert versions() == [(6, 19, "processing")]

    def test_row_22_a_version_never_ends_between_a_call_and_its_result(self, ada: UserProfile) -> None:
        append(ada, "s1", turns(6))
        work_off()
        call = {"tool_calls": [{"id": "a", "function": {"name": "weather", "arguments": "{}"}}]}
        append(ada, "s1", [NewMessage("user", "Rain?"), NewMessage("assistant", payload=call)])
        append(ada, "s1", [NewMessage("tool", "no", tool_name="weather", payload={"tool_call_id": "a"})])
        assert Summary.objects.count() == 1
        append(ada, "s1", [NewMessage("assistant", "No rain.")])
        assert versions()[-1] == (0, 9, "processing")


class TestWhen:
    """When a summary is queued."""

    def test_a_version_is_requested_only_at_the_interval_and_the_end_of_a_round(self, ada: UserProfile) -> None:
        append(ada, "s1", turns(5))
        assert not Summary.objects.exists()
        assert [job.process for job in append(ada, "s1", turns(1, first=5)).jobs] == ["roll_summary"]
        assert not append(ada, "s1", turns(1, first=6)).jobs

    @pytest.mark.slow
    def test_with_a_longer_interval_contexts_have_each_turn_without_a_summary(
        self, ada: UserProfile, service: Api, settings: Settings
    ) -> None:
        settings.ROLLING_SUMMARY = RollingSummarySettings(every_turns=8)
        asked = {"user_id": "ada", "session_id": "s1", "max_tokens": 500, "layers": ["hot_turns", "summary"]}
        for number in range(12):
            session = post_round(ada, number)
            work_off()
            latest = Summary.objects.latest_completed(session)
            covered = latest.end_sequence if latest else -1
            assert session.last_sequence - covered <= settings.MEMORY_CONTEXT.hot_turns_limit
            assert (
                f"Turn {min(covered + 1, session.last_sequence)} "
                in service.post("memory/context", **asked).json()["context"]
            )
        assert versions() == [(0, 7, "completed"), (2, 15, "completed"), (10, 23, "completed")]

    def test_digested_turns_are_not_summarized_again(self, ada: UserProfile, settings: Settings) -> None:
        settings.ROLLING_SUMMARY = RollingSummarySettings(every_turns=8)
        session = append(ada, "s1", turns(7)).session
        Job.objects.request("digest_session", session, requested_by="test", force=True)
        work_off()
        append(ada, "s1", turns(7, first=7))
        assert not Summary.objects.exists()
        append(ada, "s1", turns(2, first=14))
        assert versions() == [(2, 15, "processing")]

    def test_summaries_can_be_turned_off(self, ada: UserProfile, settings: Settings) -> None:
        settings.ROLLING_SUMMARY = settings.ROLLING_SUMMARY.model_copy(update={"enabled": False})
        assert not append(ada, "s1", turns(20)).jobs

    def test_the_row_and_the_job_are_stored_together(self, ada: UserProfile) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            append(ada, "s1", turns(6))
            raise RuntimeError
        assert not Summary.objects.exists() and not queued_job_ids()
        append(ada, "s1", turns(6))
        assert Summary.objects.processing().count() == len(queued_job_ids()) == 1

    def test_rounds_that_end_meanwhile_get_another_version(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        post_round(ada, 0), post_round(ada, 1), post_round(ada, 2)
        post_round(ada, 3), post_round(ada, 4)
        assert versions() == [(0, 5, "processing")]
        assert run_next().status == "completed"
        assert versions() == [(0, 5, "completed"), (0, 9, "processing")]
        work_off()
        assert Summary.objects.processing().count() == 0
        assert Job.objects.filter(process="roll_summary").count() == 2

    @pytest.mark.slow
    def test_a_version_costs_an_append_three_queries_at_any_length(self, ada: UserProfile, service: Api) -> None:
        def statements(role: str) -> int:
            body = {"user_id": "ada", "messages": [{"role": role, "content": "Hello."}]}
            with CaptureQueriesContext(connection) as captured:
                assert service.post("sessions/s1/messages", body).status_code == 201
            return len(captured)

        append(ada, "s1", turns(20))
        work_off()
        statements("user")  # records the use of the key, at most once a minute
        first = statements("user"), statements("assistant")
        assert first[1] == first[0] + 3
        work_off()
        append(ada, "s1", turns(400, first=24))
        work_off()
        assert (statements("user"), statements("assistant")) == first

    def test_starting_summaries_of_many_sessions_reads_no_appended_turns(self, ada: UserProfile) -> None:
        with transaction.atomic():
            before = rows_read(Message)
            batches = [Batch(NamedSession(ada, f"s{n}"), turns(20)) for n in range(30)]
            append_many([*batches, Batch(NamedSession(ada, "s0"), turns(10))])
            assert rows_read(Message) == before
        assert Summary.objects.filter(start_sequence=6, end_sequence=19).count() == 29
        assert Summary.objects.get(session__session_id="s0").start_sequence == 16


class TestContent:
    """The content of a version."""

    @pytest.mark.slow
    def test_archived_turns_of_the_window_are_sources(self, ada: UserProfile) -> None:
        for number in range(12):
            session = post_round(ada, number)
            work_off()
        ids = dict(session.messages.values_list("sequence", "pk"))
        session.messages.all().delete()  # like retention
        Session.objects.update(kept_from_sequence=24)
        post_round(ada, 12)
        work_off()
        latest = Summary.objects.latest_completed(session)
        assert latest and (latest.start_sequence, latest.end_sequence) == (12, 25)
        kept = list(session.messages.order_by("sequence").values_list("pk", flat=True))
        assert latest.source_message_ids == [ids[n] for n in range(12, 24)] + kept
        assert {index for fact in latest.facts for index in fact["message_indexes"]} & set(range(12, 24))

    @pytest.mark.slow
    @pytest.mark.parametrize("engine", ["extractive", "model"])
    def test_only_new_turns_are_read_and_facts_outside_the_window_are_dropped(
        self, ada: UserProfile, request: pytest.FixtureRequest, engine: str
    ) -> None:
        server = request.getfixturevalue("model_server") if engine == "model" else None
        for number in range(12):
            session = post_round(ada, number)
            work_off()
        latest = Summary.objects.latest_completed(session)
        assert latest and latest.base
        assert (latest.start_sequence, latest.end_sequence, latest.base.end_sequence) == (10, 23, 21)
        by_id = dict(session.messages.values_list("pk", "sequence"))
        assert [by_id[pk] for pk in latest.source_message_ids] == list(range(10, 24))
        said = {index for fact in latest.facts for index in fact["message_indexes"]}
        assert said and said <= set(range(10, 24))
        assert latest.text
        assert "Turn 9 " not in latest.text
        if server:
            assert [turn["index"] for turn in behave.turns_of(server.requests[-1])] == [22, 23]
            assert latest.engine == "openai:test-model" or latest.engine.startswith("openai:")

    def test_an_event_has_the_id_and_the_number_of_sources(self, ada: UserProfile) -> None:
        append(ada, "s1", turns(6))
        work_off()
        summary = Summary.objects.get()
        event = Event.objects.get(type="memory_summary_created")
        assert event.payload["summary_id"] == summary.pk
        assert event.payload["source_count"] == len(summary.source_message_ids) == 6
        assert summary.generation_time_ms is not None and summary.prompt_version is not None

    def test_invented_indexes_of_a_model_are_dropped(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        model_server.queue(
            behave.content(
                '{"summary_text": "They spoke.", "facts": [{"fact": "A", "message_indexes": [-1, 3, 99]},'
                ' {"fact": "B", "message_indexes": [77]}]}'
            )
        )
        append(ada, "s1", turns(6))
        work_off()
        assert Summary.objects.get().facts == [{"fact": "A", "message_indexes": [3]}]

    def test_a_version_of_system_turns_only_is_given_up(self, ada: UserProfile) -> None:
        append(ada, "s1", turns(6))
        Session.objects.get().messages.update(role="system")
        assert run_next().status == "skipped"
        assert versions() == [(0, 5, "failed")]

    def test_row_15_a_round_that_ends_during_a_run_without_work_gets_its_version(self, ada: UserProfile) -> None:
        session = append(ada, "s1", turns(6)).session
        work_off()
        waiting = Job.objects.claim(Job.objects.request(PROCESS, session, requested_by="test").job_id)
        assert waiting

        def run_it() -> None:
            run_claimed(waiting)
            connection.close()

        run = threading.Thread(target=run_it)
        with transaction.atomic():
            Session.objects.locked().get()
            Job.objects.select_for_update().get(pk=waiting.pk)
            run.start()
            wait_until_somebody_waits()
            post_round(ada, 3)
        run.join()
        assert versions() == [(0, 5, "completed"), (0, 7, "completed")]

    def test_deleting_the_session_deletes_its_summaries(self, ada: UserProfile, service: Api) -> None:
        for number in range(5):
            post_round(ada, number)
            work_off()
        assert service.delete("sessions/s1", user_id="ada").status_code == 204
        assert not Summary.objects.exists()


class TestFailure:
    """An engine that fails loses nothing."""

    @pytest.mark.slow
    @pytest.mark.parametrize("behaviour", [behave.error(500), behave.content("null")])
    def test_row_3_a_failed_call_keeps_the_last_completed_version(
        self, ada: UserProfile, model_server: OpenAIServer, behaviour: behave.Behaviour
    ) -> None:
        session = append(ada, "s1", turns(6)).session
        work_off()
        before = Summary.objects.latest_completed(session)
        model_server.always(behaviour)
        append(ada, "s1", turns(2, first=6))
        job = run_next()
        assert (job.status, job.attempts) == ("queued", 1)
        assert versions()[-1] == (0, 7, "failed")
        assert Summary.objects.latest("id").error == job.error != ""
        assert Summary.objects.latest_completed(session) == before
        model_server.always(behave.answer_well)
        append(ada, "s1", turns(2, first=8))  # the next round does not wait for the backoff
        assert run_next().status == "completed"
        latest = Summary.objects.latest_completed(session)
        assert latest and (latest.start_sequence, latest.end_sequence, latest.base) == (0, 9, before)

    def test_without_another_round_the_job_is_retried(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0})
        model_server.queue(behave.error(500))
        append(ada, "s1", turns(6))
        work_off()
        assert versions() == [(0, 5, "failed"), (0, 5, "completed")]

    def test_row_5_an_abandoned_version_is_restarted(self, ada: UserProfile) -> None:
        append(ada, "s1", turns(6))
        Job.objects.all().delete()
        assert recover_jobs().restarted == 0
        Summary.objects.update(created_at=timezone.now() - timedelta(minutes=6))
        assert recover_jobs().restarted == 1
        work_off()
        assert versions() == [(0, 5, "failed"), (0, 5, "completed")]

    def test_a_version_given_up_during_the_engine_call_is_not_written(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        append(ada, "s1", turns(6))

        def give_up(handler: Any, body: dict[str, Any]) -> None:
            Summary.objects.get().fail("An operator said so.")
            behave.answer_well(handler, body)

        model_server.queue(give_up)
        assert run_next().status == "queued"
        assert versions() == [(0, 5, "failed")]

    @pytest.mark.slow
    def test_row_4_no_completed_version_is_lost_if_half_of_the_calls_fail(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0, "max_attempts": 50})
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 0)
        model_server.always(behave.fails_at_random(0.5, seed=7))
        seen: dict[int, str] = {}
        for number in range(15):
            session = post_round(ada, number)
            work_off()
            seen |= dict(Summary.objects.completed().values_list("pk", "text"))
        assert dict(Summary.objects.completed().values_list("pk", "text")) == seen
        assert Summary.objects.filter(status="failed").exists()
        latest = Summary.objects.latest_completed(session)
        assert latest and latest.end_sequence == 29
        assert not Job.objects.exclude(status="completed").exists()


def test_row_1_the_database_allows_at_most_one_version_in_progress(ada: UserProfile) -> None:
    session = append(ada, "s1", turns(6)).session
    with pytest.raises(IntegrityError, match="summary_one_processing_per_session"):
        Summary.objects.create(session=session, user=ada, start_sequence=0, end_sequence=5)


@pytest.mark.slow
def test_row_15_rounds_of_16_clients_never_start_two_versions(service: Api) -> None:
    service.post("sessions/s1/messages", {"user_id": "ada", "messages": messages(4)})
    most = 0

    def post(client: int) -> set[int]:
        nonlocal most
        codes = set()
        for number in range(10):
            batch = [m | {"external_id": f"{client}-{number}-{n}"} for n, m in enumerate(messages(2))]
            codes.add(service.post("sessions/s1/messages", {"user_id": "ada", "messages": batch}).status_code)
            most = max(most, Summary.objects.processing().count())
        return codes

    assert set.union(*at_once(post, 16)) == {201}
    assert most == Summary.objects.count() == 1
    work_off()
    assert Summary.objects.latest("id").end_sequence == 4 + 16 * 20 - 1
    assert Summary.objects.count() == 2


class TestRest:
    """Summaries over REST."""

    @pytest.mark.slow
    def test_the_chain_is_listed_newest_first_with_source_turns(self, service: Api, ada: UserProfile) -> None:
        for number in range(10):
            post_round(ada, number)
            work_off()
        ranges = [(0, 5), (0, 7), (0, 9), (0, 11), (0, 13), (2, 15), (4, 17), (6, 19)]
        assert [(start, end) for start, end, _ in versions()] == ranges
        answer = service.get("sessions/s1/summaries", user_id="ada", limit=3)
        assert answer.status_code == 200, answer.content
        found = answer.json()
        assert [
            (row["start_sequence"], row["end_sequence"], row["base_end_sequence"]) for row in found["summaries"]
        ] == [
            (6, 19, 17),
            (4, 17, 15),
            (2, 15, 13),
        ]
        assert (found["total"], found["has_more"]) == (8, True)
        newest = found["summaries"][0]
        assert newest["source_sequences"] == list(range(6, 20))
        assert newest["status"] == "completed" and newest["text"] and newest["facts"][0]["message_indexes"]
        first = service.get("sessions/s1/summaries", user_id="ada", limit=1, offset=7).json()["summaries"][0]
        assert first["base_end_sequence"] is None

    def test_row_9_summaries_of_another_person_look_unknown(
        self, service: Api, ada: UserProfile, bo: UserProfile
    ) -> None:
        append(ada, "s1", turns(6))
        work_off()
        assert service.get("sessions/s1/summaries", user_id="bo").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(("is_requested", "ends"), [(True, [5, 9, 13, 17, 21]), (False, [5, 19])])
def test_twelve_rounds_get_more_summaries_if_contexts_are_requested(
    service: Api,
    ada: UserProfile,
    kept_receipts: None,
    monkeypatch: pytest.MonkeyPatch,
    is_requested: bool,
    ends: list[int],
) -> None:
    monkeypatch.setattr("moments_app.summaries.FREE_TURNS", WINDOW)
    for number in range(12):
        if is_requested:
            service.get("memory/context", user_id="ada", session_id="s1", query="Hi")
            receipts.waiting.flush()
        post_round(ada, number)
        work_off()
    assert [(max(0, end - 13), end, "completed") for end in ends] == versions()


@pytest.mark.slow
def test_a_language_model_is_called_after_a_context_request_or_many_turns(
    service: Api, ada: UserProfile, kept_receipts: None, monkeypatch: pytest.MonkeyPatch, model_server: OpenAIServer
) -> None:
    monkeypatch.setattr("moments_app.summaries.UNREAD_TURNS", 16)

    def rounds(count: int) -> int:
        for _ in range(count):
            said = [{"role": "user", "content": "I like kilns."}, {"role": "assistant", "content": "I see."}]
            service.post("sessions/s1/messages", {"user_id": "ada", "messages": said})
        return Job.objects.filter(process="roll_summary").count()

    assert rounds(5) == 0
    service.get("memory/context", user_id="ada", session_id="s1", query="Hi")
    receipts.waiting.flush()
    assert rounds(1) == 1
    work_off()
    assert rounds(7) == 1
    assert rounds(1) == 2
