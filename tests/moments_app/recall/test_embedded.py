"""The embedded embeddings server, used by recall, with a model that knows a few words."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management.base import CommandError
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from memoryproject.apps import finish_upgrade
from memoryproject.conf import EmbeddingSettings
from moments_app.jobs.runner import run_job
from moments_app.models import Circuit, EmbeddingModel, EngineCall, Job
from moments_app.models.embedding import TurnEmbedding
from moments_app.recall import embed
from moments_app.recall.query import with_vector
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.commands import printed
from tests.support.embeddings import serving
from tests.support.jobs import queued_job_ids, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.small_model import WIDTH, write_model

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def model_folder(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of a model for the embedded server, which the settings use."""
    folder = str(write_model(tmp_path / "small"))
    settings.DATA_DIR = tmp_path
    settings.EMBEDDING = EmbeddingSettings(provider="embedded", model_folder=folder, dimensions=WIDTH)
    settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0})
    monkeypatch.setattr("moments_app.recall.query.TIMEOUT", 30)
    return folder


def say(person: UserProfile) -> None:
    append(person, "s1", [NewMessage("user", text) for text in ("An automobile", "Something", "A piano")])
    append(person, "s1", [NewMessage("assistant", "I see.")])


def test_turns_are_found_by_meaning_without_counting_towards_limits(
    ada: UserProfile, settings: Settings, tmp_path: Path, model_folder: str
) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"max_calls_per_day": 1})
    with serving(tmp_path, model_folder):
        for _ in range(2):
            say(ada)
            work_off()
        request = with_vector(RecallRequest("car", ("turn",), None))
    assert not request.degraded
    assert recall(ada, "", request)[0].content == "An automobile"
    assert not EngineCall.objects.exists()


def test_embedding_a_query_takes_one_database_query_if_no_call_fails(
    tmp_path: Path, model_folder: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    EmbeddingModel.objects.ensure("small", WIDTH)
    with serving(tmp_path, model_folder):
        with django_assert_num_queries(1):
            assert not with_vector(RecallRequest("car")).degraded
        circuit = Circuit.objects.create(engine="embedded:small", work=Circuit.Work.QUERY, failures=1)
        assert not with_vector(RecallRequest("piano")).degraded
    circuit.refresh_from_db()
    assert circuit.failures == 0


def test_search_uses_words_while_the_server_is_down_and_vectors_follow(
    ada: UserProfile, tmp_path: Path, model_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(ada)
    for _ in range(3):
        for job_id in queued_job_ids():
            run_job(job_id)
    assert not TurnEmbedding.objects.exists()
    request = with_vector(RecallRequest("piano", ("turn",), None))
    assert request.degraded
    assert recall(ada, "", request)[0].content == "A piano"
    [waiting] = Job.objects.filter(process="embed")
    assert waiting.circuit and waiting.circuit.engine == "embedded:small"
    with serving(tmp_path, model_folder):
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 0)
        Circuit.objects.send_probes()
        work_off()
    assert TurnEmbedding.objects.count() == 4


def test_existing_texts_get_vectors_of_the_first_embedded_model(
    ada: UserProfile, settings: Settings, tmp_path: Path, model_folder: str
) -> None:
    embedded, settings.EMBEDDING = settings.EMBEDDING, EmbeddingSettings(provider="none")
    say(ada)
    settings.EMBEDDING = embedded
    finish_upgrade()
    with serving(tmp_path, model_folder):
        work_off()
    assert TurnEmbedding.objects.count() == 4
    assert EmbeddingModel.objects.get().is_filled
    finish_upgrade()
    assert not Job.objects.open().exists()


def test_searches_switch_to_a_new_embedded_model_when_all_vectors_exist(
    ada: UserProfile, settings: Settings, tmp_path: Path, model_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = EmbeddingModel.objects.create(name="of an endpoint", dimensions=8, is_active=True)
    say(ada)
    assert with_vector(RecallRequest("car", ("turn",), None)).degraded
    finish_upgrade()
    assert EmbeddingModel.objects.active().get() == before
    monkeypatch.setattr(embed, "EMBED_ALL_SECONDS", 0)
    monkeypatch.setattr("moments_app.engines.MAX_CONCURRENT_CALLS", 1)
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"batch_size": 3})
    [job] = Job.objects.filter(process="embed_all")
    with serving(tmp_path, model_folder):
        run_job(job.job_id)
        job.refresh_from_db()
        assert (job.status, job.error) == ("queued", "1 texts to embed.")
        Job.objects.update(run_after=timezone.now() - timedelta(minutes=1))
        monkeypatch.setattr(embed, "EMBED_ALL_SECONDS", 60)
        work_off()
        assert not with_vector(RecallRequest("car", ("turn",), None)).degraded
    assert EmbeddingModel.objects.active().get().name == "small"


def test_the_command_names_the_only_model_of_the_embedded_server(transactional_db: None, model_folder: str) -> None:
    with pytest.raises(CommandError, match="The embedded server has only the model small"):
        printed("embed", "--model", "text-embedding-3-large", dimensions=8)
    assert not EmbeddingModel.objects.exists()


def test_an_external_endpoint_gets_no_texts_unless_a_command_sends_them(
    ada: UserProfile, settings: Settings, embeddings_server: OpenAIServer
) -> None:
    say(ada)
    work_off()
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"query_prefix": "query: "})
    asked = len(embeddings_server.requests)
    finish_upgrade()
    work_off()
    assert len(embeddings_server.requests) == asked
    with_vector(RecallRequest("car", ("turn",), None))
    assert embeddings_server.requests[-1]["input"] == ["car"]
    out = printed("embed", "--activate")
    assert out.splitlines()[0] == "4 texts to embed, about 17 tokens, price unknown."
    with_vector(RecallRequest("piano", ("turn",), None))
    assert embeddings_server.requests[-1]["input"] == ["query: piano"]
    assert EmbeddingModel.objects.active().get().query_prefix == "query: "
