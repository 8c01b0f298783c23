"""Trying a prompt: what both texts make of the same turns. Nothing is stored."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from memory_extras.lab.trials.try_prompt import CannotTry, Trial, try_prompt
from moments_app.models import EngineCall, MemoryStream, PromptResource, PromptVersion, Summary
from moments_app.moments.division import BuildInput
from moments_app.sessions.digest import DigestSession
from moments_app.summaries import RollSummary
from sessions_app.models import Session, UserProfile
from tests.support import openai_server as behave
from tests.support.concurrency import other_connections
from tests.support.jobs import build, run
from tests.support.openai_server import OpenAIServer
from tests.support.streams import fold, form, note
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "rolling")]

Purpose = PromptResource.Purpose


def resource_for(purpose: str) -> PromptResource:
    return PromptResource.objects.select_related("active_version").get(purpose=purpose)


def tried(purpose: str, subject: Session | MemoryStream, content: str = "OTHER WORDS") -> Trial:
    return try_prompt(PromptVersion(resource=resource_for(purpose), content=content), subject)


def closing(asked: Callable[[], object]) -> Callable[[], None]:
    """Return the call for use in a thread; it closes the thread's connection."""

    def call() -> None:
        try:
            asked()
        finally:
            connection.close()

    return call


@pytest.fixture
def stream(ada: UserProfile) -> MemoryStream:
    """A stream of Ada with three waiting observations."""
    MemoryStream.objects.ensure_for(talk(ada, 2))
    stream = MemoryStream.objects.get(stream_type="user")
    for number in range(3):
        note(stream, f"Observation {number}.")
    return stream


# For each purpose, how to create pending work and how to process it.
WAITING: dict[str, Callable[[UserProfile], Session]] = {
    Purpose.MOMENT_BUILDER: lambda user: talk(user, 120),
    Purpose.ROLLING_SUMMARY: lambda user: talk(user, 30),
    Purpose.MEMORY_EXTRACTION: lambda user: talk(user, 12),
    Purpose.SESSION_DIGEST: lambda user: talk(user, 12),
}
DOING: dict[str, Callable[[Session], object]] = {
    Purpose.MOMENT_BUILDER: build,
    Purpose.ROLLING_SUMMARY: lambda session: run(RollSummary.name, session),
    Purpose.MEMORY_EXTRACTION: form,
    Purpose.SESSION_DIGEST: lambda session: run(DigestSession.name, session),
}


class TestBothSides:
    """The answers of a trial."""

    @pytest.mark.parametrize("purpose", WAITING)
    @pytest.mark.parametrize("done_before", [False, True], ids=["waiting", "done"])
    def test_nothing_is_stored_except_the_engine_calls(
        self, ada: UserProfile, model_server: OpenAIServer, purpose: str, done_before: bool
    ) -> None:
        session = WAITING[purpose](ada)
        if done_before:
            DOING[purpose](session)
            session.refresh_from_db()
        before, asked = everything(but=["moments_app_enginecall"]), len(model_server.requests)
        EngineCall.objects.all().delete()
        trial = tried(purpose, Session.objects.get(pk=session.pk))
        assert everything(but=["moments_app_enginecall"]) == before
        assert trial.is_again == done_before
        active, other = trial.answers
        assert (active.error, other.error) == ("", "") and active.answer and other.answer
        assert active.version == resource_for(purpose).active_version and not other.version.pk
        told = [request["messages"] for request in model_server.requests[asked:]]
        assert len(told) == 2 and told[0][1] == told[1][1]  # the same input
        assert sorted("OTHER WORDS" in messages[0]["content"] for messages in told) == [False, True]
        assert {(call.purpose, call.ok, call.prompt_version) for call in EngineCall.objects.all()} == {
            (f"try {purpose}", True, active.version),
            (f"try {purpose}", True, None),
        }

    @pytest.mark.parametrize("done_before", [False, True], ids=["waiting", "done"])
    def test_a_consolidation_is_tried_on_a_stream(
        self, stream: MemoryStream, model_server: OpenAIServer, done_before: bool
    ) -> None:
        if done_before:
            fold(stream)
            stream.refresh_from_db()
        before = everything(but=["moments_app_enginecall"])
        trial = tried(Purpose.STREAM_CONSOLIDATION, stream)
        assert everything(but=["moments_app_enginecall"]) == before
        assert [made.answer.content.count("Observation") for made in trial.answers] == [3, 3]
        assert trial.is_again == done_before

    @pytest.mark.slow
    def test_memory_derived_from_the_turns_is_not_shown_to_the_engine_as_known(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 12)
        form(session)

        def known() -> list[str]:
            asked = model_server.requests[-1]["messages"][1]["content"]
            return [line for line in asked.splitlines() if line.startswith("Stream: ")]

        first = known()
        tried(Purpose.MEMORY_EXTRACTION, Session.objects.get(pk=session.pk))
        assert known() == first

    def test_the_active_text_is_tried_alone(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        active = resource_for(Purpose.SESSION_DIGEST).active_version
        assert active is not None
        [made] = tried(Purpose.SESSION_DIGEST, talk(ada, 12), active.content).answers
        assert made.answer.context

    def test_a_build_is_cut_to_one_call(self, ada: UserProfile, model_server: OpenAIServer, settings: Settings) -> None:
        settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"max_input_tokens": 1_000})
        trial = tried(Purpose.MOMENT_BUILDER, talk(ada, 400))
        assert len(model_server.requests) == 2
        assert isinstance(trial.input, BuildInput)
        assert trial.input.last_sequence == trial.input.chunks[0].sequences[-1] < 300
        assert trial.answers[0].answer.segments[-1].last_sequence == trial.input.last_sequence


class TestWhenThereIsNothing:
    """A trial that can't be run reports the reason."""

    def test_a_failing_engine_is_reported_for_each_side(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        model_server.always(behave.error(500))
        before = everything(but=["moments_app_enginecall"])
        trial = tried(Purpose.MOMENT_BUILDER, talk(ada, 120))
        assert [made.error for made in trial.answers] == ["openai:gpt-4.1-mini answered with status 500."] * 2
        assert before != everything() and EngineCall.objects.filter(ok=False).count() == 2

    @pytest.mark.slow
    def test_failing_trials_do_not_delay_jobs(
        self, ada: UserProfile, model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 60)
        session = talk(ada, 120)
        model_server.queue(*[behave.error(500)] * 4)
        for _ in range(2):
            tried(Purpose.MOMENT_BUILDER, session)
        assert EngineCall.objects.filter(ok=False).count() == 4
        assert build(session).status == "completed"

    @pytest.mark.slow
    def test_daily_caps_apply_to_trials(self, ada: UserProfile, model_server: OpenAIServer, settings: Settings) -> None:
        settings.ENGINE = settings.ENGINE.model_copy(update={"max_calls_per_day": 1})
        session = talk(ada, 120)
        tried(Purpose.MOMENT_BUILDER, session)
        with pytest.raises(CannotTry, match="MAX_CALLS_PER_DAY"):
            tried(Purpose.MOMENT_BUILDER, session)

    @pytest.mark.slow
    def test_a_third_concurrent_trial_is_refused(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        session = talk(ada, 120)
        model_server.hold()
        threads = [threading.Thread(target=closing(lambda: tried(Purpose.MOMENT_BUILDER, session))) for _ in "ab"]
        for thread in threads:
            thread.start()
        model_server.wait_for_held(4)
        with pytest.raises(CannotTry, match="2 trials are already running"):
            tried(Purpose.MOMENT_BUILDER, session)
        model_server.release()
        for thread in threads:
            thread.join()
        assert len(tried(Purpose.MOMENT_BUILDER, session).answers) == 2

    def test_a_trial_without_pending_turns_is_refused(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        with pytest.raises(CannotTry, match="except those that have to stay live"):
            tried(Purpose.MOMENT_BUILDER, talk(ada, 3))
        assert not model_server.requests and not Summary.objects.exists()

    def test_a_trial_on_unreadable_archived_turns_is_refused(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        session = talk(ada, 30)
        session.messages.turns().filter(sequence__lt=20).archive()  # there is no archive file
        with pytest.raises(CannotTry, match="archived turns can't be read"):
            tried(Purpose.ROLLING_SUMMARY, session)

    def test_a_trial_of_a_prompt_that_no_engine_reads_is_refused(
        self, ada: UserProfile, request: pytest.FixtureRequest
    ) -> None:
        session = talk(ada, 120)
        with pytest.raises(CannotTry, match="no engine reads"):
            tried(Purpose.MOMENT_BUILDER, session)
        request.getfixturevalue("model_server")
        with pytest.raises(CannotTry, match="no engine reads"):
            tried(Purpose.RECALL_QUERY, session)


@pytest.mark.slow
def test_row_17_no_connection_is_held_while_a_prompt_is_tried(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 120)
    made: list[Any] = []
    model_server.hold()
    thread = threading.Thread(target=closing(lambda: made.append(tried(Purpose.MOMENT_BUILDER, session))))
    thread.start()
    model_server.wait_for_held(2)
    others = other_connections()
    model_server.release()
    thread.join()
    assert others == 0
    assert len(made[0].answers) == 2
