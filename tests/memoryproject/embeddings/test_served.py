"""The models of the embedded server: an ONNX model that knows a few words."""

import math
from pathlib import Path

from memoryproject.embeddings.served import OnnxModel
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
