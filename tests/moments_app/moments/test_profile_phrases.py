"""Interests and topics of a profile know the turns that say them."""

import json
from typing import Any

import pytest

from moments_app.models import ProfilePhrase
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.jobs import build
from tests.support.openai_server import Behaviour, OpenAIServer
from tests.support.transcript import turns

pytestmark = pytest.mark.django_db(transaction=True)


def learned(user: UserProfile) -> list[tuple[str, str, list[int]]]:
    """The phrases that are kept, each with the sequences of its turns."""
    sequences = dict(user.messages.values_list("pk", "sequence"))
    rows = ProfilePhrase.objects.for_user(user).order_by("pk")
    return [(row.kind, row.text, [sequences[pk] for pk in row.source_message_ids]) for row in rows]


def answering(**learned: list[str]) -> Behaviour:
    """A model that finds these phrases in any turns."""

    def tell(handler: Any, body: dict[str, Any]) -> None:
        handler.complete(json.dumps(behave.right_answer(body) | learned))

    return tell


def test_a_phrase_rests_on_the_turns_that_say_it(ada: UserProfile) -> None:
    session = append(ada, "s1", [*turns(4), NewMessage("user", "I love pottery."), *turns(4, first=5)]).session
    build(session, lag=0)
    ada.refresh_from_db()
    assert "pottery" in ada.interests
    assert ("interest", "pottery", [4]) in learned(ada)
    assert ProfilePhrase.objects.get(text="pottery").job == session.moments.latest("pk").job


def test_of_what_a_model_adds_new_phrases_that_turns_say_have_theirs(
    ada: UserProfile, model_server: OpenAIServer
) -> None:
    said = ["I moved my kilns outside.", "Firing kilns is slow.", "The glaze is blue."]
    model_server.queue(
        answering(new_interests=["firing kilns", "ceramics"], new_preferred_topics=["Glaze", "glaze"]),
        answering(new_interests=["Firing Kilns"], new_preferred_topics=["kilns"]),
    )
    session = append(ada, "s1", [NewMessage("user", text) for text in said]).session
    build(session, lag=0)
    assert learned(ada) == [("interest", "firing kilns", [1]), ("topic", "Glaze", [2])]
    append(ada, "s1", [NewMessage("user", "My kilns, again.")])
    build(session, lag=0)
    ada.refresh_from_db()
    assert ada.interests == ["firing kilns", "ceramics"]
    assert learned(ada)[2:] == [("topic", "kilns", [3])]
