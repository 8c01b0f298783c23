"""Vectors of facts, moments and turns are computed in the background, whatever the endpoint answers."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.process import QueuedJobs, queue_embedding
from moments_app.jobs.runner import run_job
from moments_app.models import (
    Circuit,
    EmbeddingModel,
    EngineCall,
    FactEmbedding,
    Job,
    MemoryAtom,
    Moment,
    MomentEmbedding,
    TurnEmbedding,
)
from moments_app.models.embedding import KINDS
from moments_app.models.stream import USER_DEFAULTS, MemoryStream
from moments_app.recall.embed import Embed, EmbedInput
from moments_app.recall.vectors import write
from moments_app.streams.add_atoms import add_atoms, add_statements
from moments_app.streams.edit import evict
from moments_app.turns import platform_text
from sessions_app.imports.import_sessions import Statement
from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import before_its_commit, on_its_own_connection, wait_until_somebody_waits, waiting
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.streams import note, shard
from tests.support.transcript import START, talk
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def own_stream(user: UserProfile) -> MemoryStream:
    return MemoryStream.objects.create(stream_type="user", agent_id="default", user=user, **vars(USER_DEFAULTS))


def add_fact(service: Api, stream: MemoryStream, content: str, user_id: str = "ada") -> None:
    body = {"user_id": user_id, "atom_type": "fact", "content": content}
    assert service.post(f"streams/{stream.stream_id}/atoms", **body).status_code == 201


def embedded_sequences() -> list[int]:
    sources = list(TurnEmbedding.objects.values_list("source", flat=True))
    return sorted(Message.objects.filter(pk__in=sources).values_list("sequence", flat=True))


def refuse_marked(status: int) -> behave.Behaviour:
    def answer(handler: Any, body: dict[str, Any]) -> None:
        is_marked = any("too long" in text for text in body["input"])
        (behave.error(status) if is_marked else behave.answer_well)(handler, body)

    return answer


def vectors() -> int:
    return sum(kind.objects.filter(vector__isnull=False).count() for kind in KINDS.values())


def refused() -> int:
    return sum(EmbeddingModel.objects.active().refused_by_kind().values())


def hours_later(hours: int) -> None:
    """Move the retries of refused texts that many hours back."""
    for kind in KINDS.values():
        for row in kind.objects.refused(EmbeddingModel.objects.get()).exclude(ask_again_at=None):
            kind.objects.filter(pk=row.pk).update(ask_again_at=row.ask_again_at - timedelta(hours=hours))


def together(calls: int) -> Callable[[behave.Behaviour], behave.Behaviour]:
    """Return a function that makes each of that many calls wait for the others before it answers."""
    barrier = threading.Barrier(calls, timeout=TIMEOUT)

    def waiting(then: behave.Behaviour) -> behave.Behaviour:
        def answer(handler: Any, body: dict[str, Any]) -> None:
            barrier.wait()
            then(handler, body)

        return answer

    return waiting


class TestSideBySide:
    """Several concurrent calls."""

    def test_a_job_sends_several_calls_at_once(self, embeddings_server: OpenAIServer, ada: UserProfile) -> None:
        embeddings_server.always(together(3)(behave.answer_well))
        talk(ada, 24)
        work_off()
        assert embedded_sequences() == list(range(24))
        assert EngineCall.objects.filter(purpose="embedding", error_kind="").count() == 3

    @pytest.mark.slow
    def test_other_vectors_are_kept_if_calls_are_rate_limited_and_the_rest_waits(
        self, embeddings_server: OpenAIServer, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 30)
        limited = behave.error(429, {"Retry-After": "70"})
        embeddings_server.queue(*map(together(3), (limited, behave.answer_well, limited)))
        talk(ada, 30)
        job = run_job(Job.objects.get(process="embed").job_id)
        assert job and job.status == "queued" and job.run_after - timezone.now() > timedelta(seconds=60)
        assert len(embedded_sequences()) == 10
        assert not Circuit.objects.open().exists()
        Job.objects.filter(pk=job.pk).update(run_after=timezone.now())
        work_off()
        assert embedded_sequences() == list(range(30))
        sent = Counter(text for body in embeddings_server.requests for text in body["input"])
        assert sorted(sent.values()) == [1] * 10 + [2] * 20

    def test_an_endpoint_that_did_not_answer_gets_one_call(
        self, embeddings_server: OpenAIServer, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 30)
        Circuit.objects.create(engine="openai:test-embedder", work="embedding", failures=1)
        talk(ada, 24)
        run_job(Job.objects.get(process="embed").job_id)
        assert [len(body["input"]) for body in embeddings_server.requests] == [10]

    def test_the_command_repeats_rate_limited_calls(self, embeddings_server: OpenAIServer, ada: UserProfile) -> None:
        talk(ada, 24)
        embeddings_server.queue(behave.answer_well, behave.error(429, {"Retry-After": "0.05"}))
        call_command("embed")
        assert embedded_sequences() == list(range(24))


class TestWhat:
    """Which texts get vectors, and when."""

    @pytest.mark.slow
    def test_turns_of_a_round_get_vectors_in_batches(self, embeddings_server: OpenAIServer, ada: UserProfile) -> None:
        talk(ada, 24)
        work_off()
        assert embedded_sequences() == list(range(24))
        assert sorted(len(body["input"]) for body in embeddings_server.requests) == [4, 10, 10]
        talk(ada, 2)
        work_off()
        assert embedded_sequences() == list(range(26))
        assert len(embeddings_server.requests) == 4

    @pytest.mark.slow
    def test_new_moments_and_facts_get_vectors(
        self, embeddings_server: OpenAIServer, service: Api, ada: UserProfile
    ) -> None:
        build(talk(ada, 60))
        add_fact(service, own_stream(ada), "Plays the harpsichord.")
        add_fact(service, shard("music"), "A harpsichord has jacks.")
        work_off()
        assert MomentEmbedding.objects.count() == Moment.objects.count() > 0
        owners = FactEmbedding.objects.values_list("source__content", "user__user_id")
        assert dict(owners) == {"Plays the harpsichord.": "ada", "A harpsichord has jacks.": None}

    def test_system_tool_blank_and_platform_turns_get_no_vectors(
        self, embeddings_server: OpenAIServer, ada: UserProfile
    ) -> None:
        batch = [
            NewMessage("system", "Be brief."),
            NewMessage("user", "  "),
            NewMessage("tool", "42", tool_name="sum"),
            NewMessage("user", "- Owns a kiln. (2026-03-02)"),
            NewMessage("user", "A kiln."),
            NewMessage("assistant", "Indeed."),
        ]
        platform_text.store_lines(ada.pk, ["- Owns a kiln. (2026-03-02)"])
        append(ada, "s1", batch)
        work_off()
        assert embedded_sequences() == [4, 5]
        assert Session.objects.get().embedded_sequence == 5

    def test_turns_get_no_vectors_if_that_is_off(
        self, embeddings_server: OpenAIServer, settings: Settings, ada: UserProfile
    ) -> None:
        settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"turns": False})
        talk(ada, 4)
        call_command("embed")
        assert not Job.objects.filter(process="embed").exists()
        assert not TurnEmbedding.objects.exists()

    def test_without_a_provider_no_jobs_are_requested(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 4)
        add_fact(service, own_stream(ada), "Plays the harpsichord.")
        assert not Job.objects.filter(process="embed").exists()
        with pytest.raises(CommandError, match="EMBEDDING__BASE_URL"):
            call_command("embed")

    @pytest.mark.slow
    def test_an_edited_text_gets_a_new_vector(
        self, embeddings_server: OpenAIServer, service: Api, ada: UserProfile
    ) -> None:
        build(talk(ada, 40))
        work_off()
        moment = Moment.objects.newest_first()[0]
        before = MomentEmbedding.objects.get(source=moment).vector
        service.patch(f"moments/{moment.key}", user_id="ada", summary="Something else: a harpsichord.", detail="")
        assert not MomentEmbedding.objects.filter(source=moment).exists()
        work_off()
        assert MomentEmbedding.objects.get(source=moment).vector != before
        assert MomentEmbedding.objects.count() == Moment.objects.count()

    def test_a_text_edited_during_the_call_gets_a_vector_of_its_new_words(
        self, embeddings_server: OpenAIServer, ada: UserProfile
    ) -> None:
        atom = note(own_stream(ada), "Plays the harpsichord.", "fact")
        input = Embed().claim(Job.objects.request("embed", user_id=ada.pk, requested_by="test"))
        assert isinstance(input, EmbedInput)
        atom.content = "Plays the oboe."
        atom.save()
        assert write(input.model, [(input.texts[0], [1.0] * 64)]) == 0

    def test_evicting_a_fact_deletes_its_vector(self, embeddings_server: OpenAIServer, ada: UserProfile) -> None:
        fact = note(own_stream(ada), "The oldest fact of all.", "fact")
        call_command("embed")
        assert FactEmbedding.objects.filter(source=fact).exists()
        evict(fact, requested_by="test")
        assert not FactEmbedding.objects.filter(source=fact).exists()

    def test_deleting_a_text_deletes_its_vector(self, embeddings_server: OpenAIServer, ada: UserProfile) -> None:
        session = talk(ada, 4)
        work_off()
        session.delete()
        assert not TurnEmbedding.objects.exists()


class TestFailure:
    """Rows 3 and 21 for vectors."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("behaviour", "told"),
        [
            (behave.error(500), "status 500"),
            (behave.error(429), "rate limited"),
            (behave.hang_up, "can't be reached"),
            (behave.of_width(63), "63"),
        ],
    )
    def test_row_3_a_text_that_cannot_be_embedded_is_found_by_words_reported_and_retried(
        self, embeddings_server: OpenAIServer, service: Api, ada: UserProfile, behaviour: Any, told: str
    ) -> None:
        stream = own_stream(ada)
        embeddings_server.always(behaviour)
        add_fact(service, stream, "Plays the harpsichord.")
        work_off()
        job = Job.objects.get(process="embed")
        assert job.status == "failed" and told in job.error
        assert "harpsichord" not in job.error and "sk-marked-key" not in job.error
        found = service.post("memory/search", user_id="ada", query="harpsichord").json()
        assert [result["content"] for result in found["results"]] == ["Plays the harpsichord."]
        assert found["degraded"] is True and found["mode"] == "text"
        embeddings_server.always(behave.answer_well)
        assert Embed().sweep() == QueuedJobs(1)
        work_off()
        assert FactEmbedding.objects.count() == 1
        assert Embed().sweep() == QueuedJobs(0)

    @pytest.mark.slow
    def test_row_21_a_refused_text_does_not_affect_others_and_is_not_retried(
        self, embeddings_server: OpenAIServer, ada: UserProfile
    ) -> None:
        embeddings_server.always(refuse_marked(400))
        stream = own_stream(ada)
        for number in range(15):
            note(stream, f"Fact {number}{' is too long' if number in (3, 4, 12) else ''}.", "fact")
        Job.objects.request("embed", user_id=ada.pk, requested_by="test")
        work_off()
        assert FactEmbedding.objects.filter(vector__isnull=False).count() == 12
        assert FactEmbedding.objects.filter(vector__isnull=True).count() == 3
        result = Job.objects.get(process="embed").result
        assert (result["embedded"], result["refused"]) == (12, 3)
        asked = len(embeddings_server.requests)
        Job.objects.request("embed", user_id=ada.pk, requested_by="test")
        work_off()
        assert len(embeddings_server.requests) == asked

    @pytest.mark.slow
    @pytest.mark.parametrize("status", [400, 401, 402, 404, 413, 429, 500])
    def test_row_28_an_endpoint_that_refuses_everything_marks_no_text_as_refused(
        self, embeddings_server: OpenAIServer, ada: UserProfile, settings: Settings, status: int
    ) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"max_attempts": 1})
        stream = own_stream(ada)
        for number in range(12):
            note(stream, f"Fact {number}{' is too long' if number == 7 else ''}.", "fact")
        embeddings_server.always(behave.error(status))
        Job.objects.request("embed", user_id=ada.pk, requested_by="test")
        work_off()
        assert not FactEmbedding.objects.exists()
        assert Job.objects.get(process="embed").status == "failed"
        embeddings_server.always(refuse_marked(400))
        assert Embed().sweep() == QueuedJobs(1)
        work_off()
        assert FactEmbedding.objects.filter(vector__isnull=False).count() == 11
        assert FactEmbedding.objects.get(vector__isnull=True).source.content == "Fact 7 is too long."

    @pytest.mark.slow
    @pytest.mark.parametrize("status", [400, 413])
    def test_row_28_a_refused_text_gets_its_vector_when_the_endpoint_accepts_it(
        self, embeddings_server: OpenAIServer, ada: UserProfile, settings: Settings, status: int
    ) -> None:
        settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"batch_size": 100})
        for number, session in enumerate(["s1", "s2"]):
            append(ada, session, [NewMessage("user", f"Turn {n}{' is too long' * (n == 17)}.") for n in range(20)])
            append(ada, session, [NewMessage("assistant", f"Well, {number}.")])
        stream = own_stream(ada)
        for number in range(58):
            note(stream, f"Fact {number}{' is too long' if number == 31 else ''}.", "fact")
        embeddings_server.always(refuse_marked(status))
        Job.objects.request("embed", user_id=ada.pk, requested_by="test")
        work_off()
        assert vectors() == 97 and refused() == 3
        asked = len(embeddings_server.requests)
        assert Embed().sweep() == QueuedJobs(0)
        embeddings_server.always(behave.answer_well)
        hours_later(2)
        assert Embed().sweep(dry_run=True) == QueuedJobs(3)
        assert Embed().sweep() == QueuedJobs(3)  # both sessions, and the person's facts
        work_off()
        assert vectors() == 100 and refused() == 0
        assert len(embeddings_server.requests) == asked + 3

    @pytest.mark.slow
    def test_a_repeatedly_rejected_text_waits_longer_each_time(
        self, embeddings_server: OpenAIServer, ada: UserProfile
    ) -> None:
        embeddings_server.always(refuse_marked(400))
        note(own_stream(ada), "This is too long.", "fact")
        waits = []
        for _attempt in range(8):
            Job.objects.request("embed", user_id=ada.pk, requested_by="test")
            work_off()
            row = FactEmbedding.objects.get()
            assert row.ask_again_at
            waits.append(round((row.ask_again_at - timezone.now()) / timedelta(hours=1)))
            hours_later(24 * 30)
        assert waits == [1, 4, 16, 64, 256, 720, 720, 720]

    def test_a_rejection_does_not_replace_a_vector(self, embeddings_server: OpenAIServer, ada: UserProfile) -> None:
        note(own_stream(ada), "Plays the harpsichord.", "fact")
        input = Embed().claim(Job.objects.request("embed", user_id=ada.pk, requested_by="test"))
        assert isinstance(input, EmbedInput)
        write(input.model, [(input.texts[0], [1.0] * 64)])
        write(input.model, [(input.texts[0], "answered with status 400.")])
        assert vectors() == 1

    @pytest.mark.slow
    def test_the_command_shows_rejected_texts_with_the_endpoints_words_and_sends_them_again(
        self, embeddings_server: OpenAIServer, ada: UserProfile, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stream = own_stream(ada)
        for text in ("Plays the harpsichord.", "This is too long."):
            note(stream, text, "fact")
        embeddings_server.always(refuse_marked(400))
        call_command("embed")
        told = capsys.readouterr().out
        assert "1 rejected (resend them with --refused) (openai:test-embedder answered with status 400.)" in told
        assert "complete" not in told and "too long" not in told
        embeddings_server.always(behave.answer_well)
        call_command("embed")
        assert vectors() == 1
        call_command("embed", refused=True)
        assert vectors() == 2 and "complete" in capsys.readouterr().out.splitlines()[-1]

    def test_texts_rejected_under_an_earlier_release_are_sent_again_automatically(
        self, embeddings_server: OpenAIServer, ada: UserProfile
    ) -> None:
        atom = note(own_stream(ada), "Plays the harpsichord.", "fact")
        model = EmbeddingModel.objects.in_use()
        FactEmbedding.objects.create(model=model, user=ada, source=atom, said_at=START, vector=None)
        assert Embed().sweep() == QueuedJobs(1)
        work_off()
        assert vectors() == 1

    @pytest.mark.slow
    def test_row_4_every_text_gets_one_vector_despite_random_failures(
        self, embeddings_server: OpenAIServer, settings: Settings, ada: UserProfile
    ) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"max_attempts": 30})
        embeddings_server.always(behave.fails_at_random(0.4))
        for number in range(6):
            talk(ada, 20, session_id=f"s{number}")
        work_off()
        per_turn = Counter(TurnEmbedding.objects.values_list("source_id", flat=True))
        assert len(per_turn) == 120 and set(per_turn.values()) == {1}

    def test_no_transaction_is_open_during_the_call(self, embeddings_server: OpenAIServer, ada: UserProfile) -> None:
        states: list[int] = []

        def look(handler: Any, body: dict[str, Any]) -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
                )
                states.append((cursor.fetchone() or [0])[0])
            connection.close()
            behave.answer_well(handler, body)

        embeddings_server.always(look)
        talk(ada, 4)
        work_off()
        assert states == [0]

    def test_row_4_turns_appended_during_an_embeddings_call_get_vectors(
        self, embeddings_server: OpenAIServer, ada: UserProfile
    ) -> None:
        def say_more(handler: Any, body: dict[str, Any]) -> None:
            talk(ada, 2)
            connection.close()
            behave.answer_well(handler, body)

        embeddings_server.queue(say_more)
        talk(ada, 2)
        work_off()
        assert embedded_sequences() == list(range(4))


@contextmanager
def outlasting(server: OpenAIServer, job: Job) -> Iterator[None]:
    """Open a transaction while a job waits for the endpoint. It ends after the job, or when the job waits for it."""
    server.hold()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(on_its_own_connection, run_job, job.job_id)
        server.wait_for_held(1)
        with transaction.atomic():
            yield
            server.release()
            wait_until(lambda: run.done() or waiting() > 0)
        assert run.result(TIMEOUT).status == "completed"


def without_vector() -> list[str]:
    return [fact.content for fact in MemoryAtom.objects.filter(embeddings=None)]


@pytest.mark.slow
class TestRequestsOutlastingAJob:
    """A request joins the open job, and commits when that job has looked for new texts."""

    @pytest.fixture
    def stream(self, embeddings_server: OpenAIServer, ada: UserProfile) -> MemoryStream:
        """Return a stream with a fact that has a vector, and one that has none yet."""
        stream = own_stream(ada)
        note(stream, "Plays the oboe.", "fact")
        call_command("embed")
        note(stream, "Plays the harpsichord.", "fact")
        return stream

    @pytest.fixture
    def job(self, ada: UserProfile, stream: MemoryStream) -> Job:
        return Job.objects.request("embed", user_id=ada.pk, requested_by="test")

    def test_an_added_fact_is_embedded(
        self, service: Api, embeddings_server: OpenAIServer, stream: MemoryStream, job: Job, patient: None
    ) -> None:
        embeddings_server.hold()
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(on_its_own_connection, run_job, job.job_id)
            embeddings_server.wait_for_held(1)
            with before_its_commit(MemoryAtom._meta.db_table, lambda: add_fact(service, stream, "Plays the lute.")):
                embeddings_server.release()
                wait_until(lambda: run.done() or waiting() == 2)
        work_off()
        assert MemoryAtom.objects.count() == 3 and without_vector() == []

    def test_an_edited_fact_is_embedded(self, embeddings_server: OpenAIServer, job: Job) -> None:
        fact = MemoryAtom.objects.get(content="Plays the oboe.")
        with outlasting(embeddings_server, job):
            fact.content = "Plays the bassoon."
            fact.save()
        work_off()
        assert without_vector() == []

    def test_an_imported_fact_is_embedded(self, embeddings_server: OpenAIServer, ada: UserProfile, job: Job) -> None:
        with outlasting(embeddings_server, job):
            add_statements({"ada": ada}, [Statement("line 1", "import:mem0", "ada", "", "Plays the lute.")])
        work_off()
        assert MemoryAtom.objects.count() == 3 and without_vector() == []

    def test_a_fact_of_a_shard_is_embedded(self, embeddings_server: OpenAIServer) -> None:
        stream = shard("kilns")
        note(stream, "Kilns crack when they cool fast.", "fact")
        job = Job.objects.request("embed", stream=stream, requested_by="test")
        with outlasting(embeddings_server, job):
            atom = MemoryAtom(stream=stream, atom_type="fact", content="Kilns need ventilation.")
            add_atoms(stream, [atom], requested_by="test")
        work_off()
        assert without_vector() == []

    def test_a_request_that_changes_an_embedded_fact_does_not_deadlock(
        self, embeddings_server: OpenAIServer, job: Job
    ) -> None:
        fact = MemoryAtom.objects.get(content="Plays the harpsichord.")
        with outlasting(embeddings_server, job):
            queue_embedding("test", user_id=job.user_id)
            embeddings_server.release()
            wait_until_somebody_waits()
            fact.content = "Plays the piano."
            fact.save()
        work_off()
        assert without_vector() == []

    def test_a_request_does_not_delay_heartbeats_and_other_requests(
        self, embeddings_server: OpenAIServer, job: Job
    ) -> None:
        taken = Job.objects.claim(job.job_id)
        assert taken is not None
        with ThreadPoolExecutor(2) as pool, transaction.atomic():
            queue_embedding("test", user_id=job.user_id)
            other = partial(queue_embedding, "test", user_id=job.user_id)
            pool.submit(on_its_own_connection, taken.record_heartbeat, 1, 2).result(TIMEOUT)
            joined = pool.submit(on_its_own_connection, transaction.atomic(other)).result(TIMEOUT)
        assert (joined, Job.objects.get(pk=job.pk).progress_done) == (job, 1)


class TestSecondModel:
    """Filling another model in addition to the active one, and switching to it."""

    @pytest.mark.slow
    def test_the_command_fills_missing_vectors_and_activates_on_request(
        self, embeddings_server: OpenAIServer, ada: UserProfile, capsys: pytest.CaptureFixture[str]
    ) -> None:
        talk(ada, 24)
        note(own_stream(ada), "Plays the harpsichord.", "fact")
        call_command("embed")
        assert EmbeddingModel.objects.get(is_active=True).name == "test-embedder"
        call_command("embed", model="wider", dimensions=96)
        out = capsys.readouterr().out
        assert "turns: 24 of 24" in out and "not in use; --activate" in out
        assert EmbeddingModel.objects.get(is_active=True).dimensions == 64
        talk(ada, 2)
        work_off()  # new turns were embedded with the active model
        call_command("embed", model="wider", dimensions=96, activate=True)
        wider = EmbeddingModel.objects.get(is_active=True)
        assert (wider.name, wider.dimensions) == ("wider", 96)
        assert TurnEmbedding.objects.filter(model=wider).count() == 26
        assert TurnEmbedding.objects.exclude(model=wider).count() == 26
        talk(ada, 2)
        work_off()
        assert TurnEmbedding.objects.filter(model=wider).count() == 28

    @pytest.mark.slow
    def test_an_interrupted_command_keeps_its_vectors_and_continues(
        self, embeddings_server: OpenAIServer, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.engines.MAX_CONCURRENT_CALLS", 1)
        talk(ada, 24)
        embeddings_server.queue(behave.answer_well, behave.raw("null"))
        with pytest.raises(CommandError, match="Run the command again"):
            call_command("embed")
        assert TurnEmbedding.objects.count() == 10
        call_command("embed")
        assert TurnEmbedding.objects.count() == 24
        assert [len(body["input"]) for body in embeddings_server.requests] == [10, 10, 10, 4]

    def test_each_model_has_an_index_and_an_invalid_one_is_rebuilt(
        self, embeddings_server: OpenAIServer, ada: UserProfile
    ) -> None:
        call_command("embed")
        model = EmbeddingModel.objects.get()
        index = f"moments_app_turnembedding_nearest_{model.pk}"
        with connection.cursor() as cursor:
            cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass(%s)", [index])
            call_command("embed", model="test-embedder", dimensions=64)
            cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [index])
            assert cursor.fetchone() == (True,)
            cursor.execute("SELECT pg_get_indexdef(to_regclass(%s))", [index])
            [definition] = cursor.fetchone() or [""]
        assert "hnsw" in definition and "halfvec(64)" in definition and f"model_id = {model.pk}" in definition

    @pytest.mark.parametrize("options", [{"model": "x"}, {"dimensions": 5}, {"model": "x", "dimensions": 4_001}])
    def test_an_incomplete_model_is_rejected(
        self, embeddings_server: OpenAIServer, db: None, options: dict[str, Any]
    ) -> None:
        with pytest.raises(CommandError, match="--dimensions"):
            call_command("embed", **options)
