"""The embedded embeddings server as recall uses it, with a model of a few words."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memoryproject.conf import EmbeddingSettings
from moments_app.jobs.runner import run_job
from moments_app.models import Circuit, EngineCall, Job
from moments_app.models.embedding import TurnEmbedding
from moments_app.recall.query_vector import with_vector
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.embeddings import serving
from tests.support.jobs import queued_job_ids, work_off
from tests.support.small_model import WIDTH, write_model

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def model_folder(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model for the embedded server, which the site is set to use."""
    folder = str(write_model(tmp_path / "small"))
    settings.DATA_DIR = tmp_path
    settings.EMBEDDING = EmbeddingSettings(provider="embedded", model_folder=folder, dimensions=WIDTH)
    settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 0})
    monkeypatch.setattr("moments_app.recall.query_vector.SECONDS", 30)
    return folder


def say(person: UserProfile) -> None:
    append(person, "s1", [NewMessage("user", text) for text in ("An automobile", "Something", "A piano")])
    append(person, "s1", [NewMessage("assistant", "I see.")])


def test_what_was_said_is_found_by_its_meaning_and_counts_under_no_limit(
    ada: UserProfile, settings: Settings, tmp_path: Path, model_folder: str
) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"max_calls_per_day": 1})
    with serving(tmp_path, "--model-folder", model_folder):
        for _ in range(2):
            say(ada)
            work_off()
        request = with_vector(RecallRequest("car", ("turn",), None))
    assert not request.degraded
    assert recall(ada, "", request)[0].content == "An automobile"
    assert not EngineCall.objects.exists()


def test_while_the_server_is_away_search_is_by_words_and_vectors_follow_when_it_is_back(
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
    with serving(tmp_path, "--model-folder", model_folder):
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 0)
        Circuit.objects.send_probes()
        work_off()
    assert TurnEmbedding.objects.count() == 4
