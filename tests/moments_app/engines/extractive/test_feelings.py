"""Feelings that are named, and not denied."""

import pytest

from moments_app.engines.extractive.feelings import feelings


@pytest.mark.parametrize(
    "said",
    [
        "No worries, Mel!",
        "I am not happy at all.",
        "I was never really afraid of it.",
        "Happy birthday!",
        "I don't feel sad about it.",
        "That must be exciting for you.",
    ],
)
def test_what_is_denied_or_wished_is_not_felt(said: str) -> None:
    assert feelings([said]) == []


def test_what_is_named_is_felt_and_the_most_frequent_first() -> None:
    said = ["I am worried about the opening.", "We can't wait!", "I'm not angry, but I am so worried."]
    assert feelings(said) == ["worry", "excitement"]
