"""First person turned into third."""

import pytest

from moments_app.engines.extractive.voice import Speaker, told

ADA, BO = Speaker("Ada", True), Speaker("Bo", True)

TOLD = {
    "I adopted a puppy and I'm happy.": "Ada adopted a puppy and they are happy.",
    "I live in Turin and teach chemistry.": "Ada lives in Turin and teaches chemistry.",
    "I want to go and see it.": "Ada wants to go and see it.",
    "I don't have a car, but I do ride a bike.": "Ada doesn't have a car, but they do ride a bike.",
    "My sister gave me her violin.": "Ada's sister gave them her violin.",
    "I've been carving spoons since I was nine.": "Ada has been carving spoons since they were nine.",
    "I'd love to return, I'd been there twice.": "Ada would love to return, they had been there twice.",
    "I was not amused.": "Ada was not amused.",
    "We always look forward to our trip.": "Ada always looks forward to their trip.",
    "We cook, sing songs and play cards with each other.": (
        "Ada and others cook, sing songs and play cards with each other."
    ),
    "My uncle and I went rowing.": "Ada and their uncle went rowing.",
    "Jonas and I go to Bologna.": "Jonas and Ada go to Bologna.",
    "I told you about your tent.": "Ada told Bo about Bo's tent.",
    "I know that you paint and I like what you were doing.": (
        "Ada knows that Bo paints and they like what Bo was doing."
    ),
    "I hope to help you find it.": "Ada hopes to help Bo find it.",
    "I slowly carved it and retook my seat.": "Ada slowly carved it and retook their seat.",
    "I really rely on it.": "Ada really relies on it.",
    "Started hitting the gym.": "Ada started hitting the gym.",
    "Been busy with my boat.": "Ada has been busy with their boat.",
    "Just got back from my course.": "Ada just got back from their course.",
    "Looking forward to my party.": "Ada is looking forward to their party.",
    "Looking back is hard.": "Looking back is hard.",
    "Gonna sell my boat.": "Ada is going to sell their boat.",
    'My aunt said "I love my boat" to me.': 'Ada\'s aunt said "I love my boat" to them.',
    "I love music, dance and art.": "Ada loves music, dance and art.",
    "I color-code my jars.": "Ada color-codes their jars.",
    "I co-founded a firm.": "Ada co-founded a firm.",
    "I carve out some me-time.": "Ada carves out some me-time.",
    "The shop opens in May.": "The shop opens in May.",
    "One of us has to stay.": "One of Ada and others has to stay.",
}


@pytest.mark.parametrize("said", TOLD)
def test_what_somebody_says_of_themselves_is_told_of_them(said: str) -> None:
    assert told(said, ADA, BO) == TOLD[said]


def test_you_stays_where_nobody_with_a_name_is_spoken_to() -> None:
    assert told("I told you so.", Speaker("User", False), None) == "User told you so."
