"""Greetings, interjections and reactions."""

import pytest

from moments_app.engines.extractive.sentences import is_reaction, nicknames, without_openers

CALLED = nicknames(["Melissa", "Bo Lund"])

OPENED = {
    "Hey Mel!": "",
    "Thanks, Melissa! I sold the boat.": "I sold the boat.",
    "Wow, that's great, Mel!": "That's great!",
    "Yeah, I painted it.": "I painted it.",
    "I painted it, Bo.": "I painted it.",
    "Oh no! Sorry, Mel — the kiln broke.": "The kiln broke.",
    "No emojis, please.": "No emojis, please.",
    "No, I never smoked.": "I never smoked.",
    "So many people came.": "So many people came.",
    "Hi Claude, I quit.": "I quit.",
    "Oof, my back hurts.": "My back hurts.",
    "Woah, Bo, the barn burned down.": "The barn burned down.",
    "Yup, I play the oboe.": "I play the oboe.",
    "Oh man! Our cat ran away.": "Our cat ran away.",
    "Thanks for asking, I'm better.": "I'm better.",
    "And my sister moved to Oslo.": "My sister moved to Oslo.",
    "But her exam went badly.": "Her exam went badly.",
    "Plus we sold the car.": "We sold the car.",
    "Also he brought cake.": "He brought cake.",
    "And yes, we have a dog.": "We have a dog.",
    "Andrea called.": "Andrea called.",
    "Manuel called.": "Manuel called.",
    "Button cells are in the drawer.": "Button cells are in the drawer.",
    "Hey Paris is lovely.": "Hey Paris is lovely.",
    "Mellow colors are best.": "Mellow colors are best.",
}


@pytest.mark.parametrize("said", OPENED)
def test_fillers_before_a_statement_are_removed(said: str) -> None:
    assert without_openers(said, CALLED) == OPENED[said]


@pytest.mark.parametrize(
    "said",
    [
        "That sounds great!",
        "I'm so proud of you.",
        "You sound like my mother.",
        "No worries!",
        "Kudos to you.",
        "Long time no see!",
        "Take care.",
    ],
)
def test_reactions_are_distinguished_from_statements(said: str) -> None:
    assert is_reaction(said)
    assert not is_reaction("I sold the boat.") and not is_reaction("Keepsakes fill the shelf.")
