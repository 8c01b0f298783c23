"""The local embedder, with a real model of a few words."""

import math
import threading
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django.fixtures import Settings

from memoryproject import conf, providers
from memoryproject.conf import EmbeddingSettings
from moments_app import engines
from moments_app.engines.interface import EngineError
from moments_app.engines.local import LocalEmbedder
from moments_app.models import EngineCall
from moments_app.recall.query_vector import with_vector
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.jobs import work_off
from tests.support.small_model import WIDTH, write_model


def embedder(folder: Path, dimensions: int = WIDTH) -> LocalEmbedder:
    return LocalEmbedder(folder=folder, folder_has="small", model="small", dimensions=dimensions)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "small")


def test_texts_get_their_vectors_in_their_order_whatever_their_lengths(folder: Path) -> None:
    texts = [f"car {'and so on ' * (number % 7)}" for number in range(40)] + ["piano"]
    vectors = embedder(folder).embed(texts)
    assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-5) for vector in vectors)
    assert vectors[0] == pytest.approx(embedder(folder).embed(["car"])[0])
    assert vectors[3] == pytest.approx(embedder(folder).embed([texts[3]])[0]), "what is beside a text changes nothing"
    assert vectors[40][1] > 0.9


def test_the_files_of_a_model_say_whether_its_first_token_is_the_text(tmp_path: Path) -> None:
    first = embedder(write_model(tmp_path / "first", takes_first=True)).embed(["car piano piano"])[0]
    mean = embedder(write_model(tmp_path / "mean")).embed(["car piano piano"])[0]
    assert first[0] > first[1] and mean[0] < mean[1]


def test_no_thread_is_begun_as_workers_fork_after_the_model_was_loaded(folder: Path) -> None:
    before = len(list(Path("/proc/self/task").iterdir())) if Path("/proc").exists() else threading.active_count()
    embedder(folder).embed(["car"] * 40)
    after = len(list(Path("/proc/self/task").iterdir())) if Path("/proc").exists() else threading.active_count()
    assert after == before


def test_another_width_another_model_and_no_model_are_told_without_a_word_of_the_text(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=r"has 3 numbers, not 4\.") as wrong:
        embedder(folder, 4).embed(["car"])
    with pytest.raises(EngineError, match=r"The local model is small, not other") as other:
        LocalEmbedder(folder=folder, folder_has="small", model="other", dimensions=WIDTH).embed(["car"])
    with pytest.raises(EngineError, match="can't be used") as missing:
        embedder(tmp_path / "nothing").embed(["car"])
    assert [error.value.kind for error in (wrong, other, missing)] == ["invalid_answer", "address", "unavailable"]


def test_the_model_is_called_as_its_folder_and_a_process_with_a_wrong_one_does_not_start(
    settings: Settings, folder: Path
) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"EMBEDDING: .* needs EMBEDDING__MODEL_FOLDER"):
        conf.load({"EMBEDDING__PROVIDER": "local"})
    told = {"EMBEDDING__PROVIDER": "local", "EMBEDDING__MODEL_FOLDER": str(folder)}
    settings.EMBEDDING = conf.load(told).embedding
    assert settings.EMBEDDING.model == "small"
    with pytest.raises(ImproperlyConfigured, match=r"EMBEDDING__DIMENSIONS: .* has 3 numbers, not 1,536"):
        engines.load()
    settings.EMBEDDING = conf.load(told | {"EMBEDDING__DIMENSIONS": "3"}).embedding
    engines.load()
    assert list(providers.providers()) == [], "nobody is asked"


@pytest.mark.django_db(transaction=True)
def test_what_was_said_is_found_by_its_meaning_and_no_call_is_made(
    ada: UserProfile, settings: Settings, folder: Path
) -> None:
    settings.EMBEDDING = EmbeddingSettings(provider="local", model_folder=str(folder), dimensions=WIDTH)
    settings.ENGINE = settings.ENGINE.model_copy(update={"max_calls_per_day": 1})
    append(ada, "s1", [NewMessage(role="user", content=text) for text in ("An automobile", "Something", "A piano")])
    append(ada, "s1", [NewMessage(role="assistant", content="I see.")])
    work_off()
    request = with_vector(RecallRequest("car", ("turn",), None))
    assert recall(ada, "", request)[0].content == "An automobile"
    assert not EngineCall.objects.filter(purpose="embedding").exists()
