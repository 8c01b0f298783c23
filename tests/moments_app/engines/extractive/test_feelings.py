"""Feelings that are named and not negated."""

import pytest

from moments_app.engines.extractive.moments import feelings


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
def test_denied_and_wished_feelings_are_not_found(said: str) -> None:
    assert feelings([said]) == []


def test_named_feelings_are_found_most_frequent_first() -> None:
    said = ["I am worried about the opening.", "We can't wait!", "I'm not angry, but I am so worried."]
    assert feelings(said) == ["worry", "excitement"]
