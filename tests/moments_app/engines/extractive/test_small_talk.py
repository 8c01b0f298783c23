"""Small talk between people, which is not kept, and statements that only begin like it, which are."""

from datetime import UTC, datetime

import pytest

from moments_app.engines.extractive.sentences import read_window
from moments_app.engines.transcript import Turn

AT = datetime(2026, 3, 4, 8, tzinfo=UTC)


def kept(said: str) -> bool:
    return all(one.can_be_kept for one in read_window([Turn(0, "user", said, AT)]).sentences)


@pytest.mark.parametrize(
    "said",
    [
        "All those late evenings paid off for you!",
        "With your patience, the roses grow fast.",
        "Great that you're back on the bike.",
        "Impressed by your garden.",
        "Trust yourself and keep climbing!",
        "Wow, way to turn your hobby into a shop!",
        "Such a brave step, you've earned the rest.",
        "Can't wait for your concert!",
    ],
)
def test_praise_and_advice_for_the_listener_are_omitted(said: str) -> None:
    assert not kept(said)


@pytest.mark.parametrize(
    "said",
    [
        "Patience is key.",
        "Good sleep is so important.",
        "Mental health's a priority.",
        "Starting over abroad takes courage.",
        "Trusting strangers can be hard.",
        "Sharing meals with neighbors is lovely.",
        "Life's too short for bad coffee.",
    ],
)
def test_platitudes_are_omitted(said: str) -> None:
    assert not kept(said)


@pytest.mark.parametrize(
    "said",
    [
        "Dad had surgery, so your call meant a lot.",
        "The keys are at Rosa's, she's waiting for your call.",
        "Lunch with your team moved to three o'clock.",
        "The choir tomorrow needs your chairs.",
        "From the roof of the library you can see the harbor.",
        "To open the shed you have to lift the door.",
        "The deposit is important for the landlord.",
        "Quitting smoking is hard for my sister.",
        "Baking bread is fun for the whole street.",
        "Running every morning is important for my back.",
        "Managing a team of nine is tough.",
        "The dog is fine with your cat.",
        "Dogs sleep in the kitchen.",
        "Trying to sell the boat, it's pretty hard.",
        "Life's been rough since the flood.",
    ],
)
def test_statements_that_mention_the_listener_or_praise_something_are_kept(said: str) -> None:
    assert kept(said)


@pytest.mark.parametrize(
    "said",
    [
        "I see a therapist every Tuesday.",
        "I hope to open a bakery next spring.",
        "I know the owner of the mill in Aarhus.",
        "I bet 20 euros on the derby and lost.",
        "I guess I'll quit my job in May.",
        "Looks like I'm moving to Porto in June.",
        "Seeing a new doctor for my back next week.",
        "We all have diabetes in my family.",
        "I'm sure my brother sold the boat.",
        "Have a dog named Rex and two cats.",
        "I agree with my wife that we should move.",
        "I'm sorry I missed my appointment with Dr. Lee.",
        "Takes me an hour to get to work.",
    ],
)
def test_statements_about_the_speaker_that_begin_like_a_reaction_are_kept(said: str) -> None:
    assert kept(said)


@pytest.mark.parametrize(
    "said",
    [
        "I see what you mean.",
        "I hope you have a great time in Paris!",
        "I know the feeling.",
        "I bet.",
        "I 100% agree.",
        "I'm sorry about the delay.",
        "I'm sorry about Rex.",
        "Keep me posted on your exam.",
        "Let's spend more time with our family!",
        "Together we can rebuild our school.",
        "Looks so good!",
        "Tell me about Rome.",
    ],
)
def test_reactions_are_omitted(said: str) -> None:
    assert not kept(said)


@pytest.mark.parametrize(
    "said",
    [
        "That photo is from my wedding in Rome.",
        "This picture shows my brother with his first boat.",
        "That was a hard year - I lost my job.",
        "That's a long story; I moved three times.",
        "This week was rough – my car broke down twice.",
    ],
)
def test_a_clause_about_the_speaker_makes_a_sentence_clear(said: str) -> None:
    assert kept(said)


@pytest.mark.parametrize("label", ["Assistant", "AI", "Assistent", "Asistente", "Ассистент", "助手"])
def test_a_turn_labeled_with_its_role_is_not_a_persons(label: str) -> None:
    said = [("user", "Ada: My rug is wet."), ("assistant", f"{label}: Let the rug dry for two days.")]
    window = read_window([Turn(n, role, text, AT) for n, (role, text) in enumerate(said)])
    assert [(one.speaker.name, one.speaker.is_named, one.is_by_person) for one in window.sentences] == [
        ("Ada", True, True),
        ("Assistant", False, False),
    ]


@pytest.mark.parametrize("label", ["Ada", "Bo Lund", "Aino", "Botho", "Assist"])
def test_other_labels_of_the_assistants_turns_are_names(label: str) -> None:
    said = [("user", "Eve: My rug is wet."), ("assistant", f"{label}: My rug dried for two days.")]
    *_, last = read_window([Turn(n, role, text, AT) for n, (role, text) in enumerate(said)]).sentences
    assert (last.speaker.name, last.is_by_person) == (label, True)


@pytest.mark.parametrize(
    ("said", "is_lasting"),
    [
        ("I won't quit.", False),
        ("I won't quit, whatever comes.", False),
        ("I'll never quit.", False),
        ("I do not quit easily.", False),
        ("We can't wait to see you all.", False),
        ("I quit smoking in May.", True),
        ("I won't quit my job.", True),
        ("I quit yesterday.", True),
        ("I can't wait to retire.", True),
        ("I can't wait to see my new school.", True),
    ],
)
def test_determination_is_not_lasting_information(said: str, is_lasting: bool) -> None:
    [one] = read_window([Turn(0, "user", said, AT)]).sentences
    assert one.is_lasting == is_lasting
