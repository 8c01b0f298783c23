"""Sentences that can be understood without their context."""

import pytest

from moments_app.engines.extractive.sentences import needs_context

ALONE = (
    "My daughter, Mia, is six.",
    "My brother called, and I talked to him.",
    "My dog hides his bone when it rains.",
    "A kiln element lasts about 150 firings.",
    "In May we went to Rome, our first trip.",
    "This year I started a shop, and I love the work.",
)
LEANING = {
    "en": ("It was great.", "He lives in Rome.", "Then 150,000 is plenty.", "I want to let them know.", "I love it."),
    "de": ("Es war schön.", "Das war toll.", "Er wohnt in Rom."),
    "es": ("Eso me gusta mucho.", "Ella vive en Roma."),
    "fr": ("C'était bien.", "Elle habite à Rome."),
    "zh": ("它很好。", "然后我走了。"),
    "ru": ("Это было хорошо.", "Он живёт в Риме."),
}


@pytest.mark.parametrize("text", ALONE)
def test_a_sentence_that_names_its_subject_is_independent(text: str) -> None:
    assert not needs_context(text, "en")


@pytest.mark.parametrize("language", LEANING)
def test_a_sentence_that_refers_to_earlier_ones_is_dependent(language: str) -> None:
    assert [text for text in LEANING[language] if not needs_context(text, language)] == []
    assert not needs_context("Das alte Motorrad habe ich verkauft.", "de")
