"""The kind of request that a query is, judged by its words."""

import pytest

from moments_app.recall.request import RecallRequest


@pytest.mark.parametrize(
    "query",
    [
        "What did you recommend?",
        "Was hast du vorgeschlagen?",
        "Was haben Sie mir empfohlen?",
        "Qu'est-ce que t'avais dit ?",
        "¿Qué me recomendaste ayer?",
        "Cosa mi hai consigliato?",
        "O que você sugeriu?",
        "Что ты посоветовал?",
        "Wat raadde jij aan?",
        "你推荐了什么？",
    ],
)
def test_a_query_addresses_the_assistant(query: str) -> None:
    assert RecallRequest(query).asks_assistant


@pytest.mark.parametrize(
    "query",
    ["Where do I work?", "Wo arbeitet sie?", "Sie heißt wie?", "Où est-ce que je travaille ?", "我在哪里工作？"],
)
def test_a_query_does_not_address_the_assistant(query: str) -> None:
    assert not RecallRequest(query).asks_assistant
