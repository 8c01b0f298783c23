"""The models of the embedded server: an ONNX model that knows a few words, and the packaged model."""

import math
from pathlib import Path

import pytest

from memoryproject.embeddings.served import MAX_TOKENS, OnnxModel, PackagedModel
from tests.support.small_model import WIDTH, write_model


def test_an_onnx_model_is_named_after_its_folder_and_returns_unit_vectors(tmp_path: Path) -> None:
    model = OnnxModel(write_model(tmp_path / "small"))
    assert (model.name, model.dimensions) == ("small", WIDTH)
    car, piano = (model.embed(word, is_query=False).vector for word in ("car", "piano"))
    assert math.isclose(math.hypot(*car), 1, rel_tol=1e-5)
    assert car[0] > 0.9 and piano[1] > 0.9


def test_the_files_of_a_model_choose_between_first_token_and_mean_pooling(tmp_path: Path) -> None:
    first = OnnxModel(write_model(tmp_path / "first", takes_first=True))
    mean = OnnxModel(write_model(tmp_path / "mean"))
    vectors = [model.embed("car piano piano", is_query=False).vector for model in (first, mean)]
    assert [vector[0] > vector[1] for vector in vectors] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "\0", "\ud83d", "a\0b", "去年" * 2_000, "🙈" * 5_000, "x" * 100_000])
def test_the_packaged_model_accepts_any_text_and_embeds_the_start_of_a_long_one(text: str) -> None:
    made = PackagedModel().embed(text, is_query=False)
    assert math.isclose(math.hypot(*made.vector), 1, rel_tol=1e-4)
    assert made.tokens <= MAX_TOKENS


@pytest.mark.slow
def test_the_packaged_model_finds_an_answer_in_another_language() -> None:
    model = PackagedModel()
    question = model.embed("Was darf das Kind nicht essen?", is_query=True).vector
    said = ["My daughter is allergic to hazelnuts.", "The train to Vienna was late.", "We painted the kitchen green."]
    scores = [float(model.embed(text, is_query=False).vector @ question) for text in said]
    assert scores.index(max(scores)) == 0
