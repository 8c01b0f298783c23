"""Facts in time: which facts end others, what was known when, and that nothing is overwritten."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from moments_app.models import Contradiction, MemoryAtom, Retraction
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.timeline import CannotDecide, decide
from sessions_app.models import Session, UserProfile
from tests.support.api import Api
from tests.support.lives import JOBS, MOVES, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def homes(user: UserProfile) -> list[tuple[str, str, str]]:
    """Return the statements about a home: value, start and end."""
    facts = MemoryAtom.objects.filter(user=user, attribute="home").in_order()
    return [(fact.value, _day(fact.valid_from), _day(fact.valid_until)) for fact in facts]


def _day(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d}" if time else ""


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_a_fact_begins_on_the_day_in_the_persons_time_zone(ada: UserProfile, service: Api, zone: str) -> None:
    service.patch("users/ada", timezone=zone)
    say(ada, "s1", "2025-03-10", "I moved to Bergen on 3 March 2025.")
    say(ada, "s2", "2025-09-15", "I moved to Stavanger on 1 September 2025.")
    days = [datetime(2025, month, day, tzinfo=ZoneInfo(zone)) for month, day in ((3, 3), (9, 1))]
    facts = MemoryAtom.objects.filter(attribute="home").in_order()
    assert list(facts.values_list("valid_from", "valid_until")) == [(days[0], days[1]), (days[1], None)]
    asked = {"user_id": "ada", "session_id": "s3", "query": "Did I live in Bergen?", "layers": "retrieved"}
    assert "(held from 2025-03-03 until 2025-09-01)" in service.get("memory/context", **asked).json()["context"]


def test_a_denied_home_ends_if_the_sentence_gives_the_right_one(ada: UserProfile) -> None:
    say(ada, "s1", "2025-03-10", "I live in Porto.")
    say(ada, "s2", "2025-04-10", "I don't live in Porto, I live in Faro.")
    current = MemoryAtom.objects.current().filter(user=ada, attribute="home")
    assert set(current.values_list("value", flat=True)) == {"Faro"}


@pytest.mark.slow
def test_the_order_of_arrival_does_not_matter(ada: UserProfile, bo: UserProfile) -> None:
    said = [*MOVES, *JOBS]
    for user, order in ((ada, said), (bo, said[::-1])):
        for number, (day, text) in enumerate(order):
            say(user, f"s{number}", day, text)
    ends = [
        list(
            MemoryAtom.objects.filter(user=user).exclude(attribute="").in_order().values_list("content", "valid_until")
        )
        for user in (ada, bo)
    ]
    assert ends[0] == ends[1] and len(ends[0]) == 5


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_person_who_gave_their_name_is_the_user(ada: UserProfile, order: tuple[int, ...]) -> None:
    told = [("2025-01-05", "I live in Oslo.", ""), ("2025-02-05", "My name is Nora.", "")]
    told.append(("2025-03-03", "I moved to Bergen.", "Nora"))
    for number in order:
        day, text, name = told[number]
        say(ada, f"s{number}", day, text, name=name)
    assert set(MemoryAtom.objects.filter(attribute="home").values_list("subject", flat=True)) == {"User", "Nora"}
    assert homes(ada) == [("Oslo", "", "2025-03-03"), ("Bergen", "2025-03-03", "")]


def test_a_fact_stated_in_several_sessions_is_listed_once_with_the_latest(
    ada: UserProfile, bo: UserProfile, service: Api
) -> None:
    for number, text in enumerate(["The studio is warm.", "The studio is cold.", "The studio is warm."]):
        say(ada, f"s{number}", f"2025-0{number + 1}-05", text)
    say(bo, "s9", "2025-09-09", "The studio is warm.")
    first, second = ("User: The studio is warm.", "s2"), ("User: The studio is cold.", "s1")
    pages = [service.get("facts", user_id="ada", limit=2).json(), service.get("facts", user_id="ada", limit=1).json()]
    after = pages[1]["facts"][0]["fact_id"]
    pages.append(service.get("facts", user_id="ada", limit=1, after=after).json())
    found = [[(fact["content"], fact["session_id"]) for fact in page["facts"]] for page in pages]
    assert found == [[first, second], [first], [second]]
    assert [page["has_more"] for page in pages] == [False, True, False]
    assert len(service.get("facts", user_id="ada", state="all").json()["facts"]) == 3


def test_an_ended_state_has_no_value_afterwards(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-05", "I work as a banker.")
    say(ada, "s2", "2025-02-05", "I lost my job as a banker.")
    facts = MemoryAtom.objects.filter(user=ada, attribute="work").in_order()
    assert [(fact.value, fact.state) for fact in facts] == [("banker", "ended"), ("", "active")]


def test_an_unknown_speaker_has_a_separate_timeline(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-05", "I live in Oslo.")
    say(ada, "s2", "2025-03-03", "I moved to Bergen.", name="Bo")
    assert homes(ada) == [("Oslo", "", ""), ("Bergen", "2025-03-03", "")]


def test_an_ambiguous_name_waits_for_an_operator(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-05", "My daughter is called Maya.")
    say(ada, "s2", "2025-02-05", "My daughter is called Mia.")
    [question] = Contradiction.objects.waiting()
    assert (question.earlier.value, question.later.value) == ("Maya", "Mia")
    assert {fact.state for fact in MemoryAtom.objects.filter(attribute="daughter")} == {"active"}


def names() -> dict[str, str]:
    return dict(MemoryAtom.objects.filter(attribute="daughter").values_list("value", "state"))


@pytest.mark.slow
def test_an_operators_answer_ends_the_fact_or_not_and_can_be_undone(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-05", "My daughter is called Maya.")
    say(ada, "s2", "2025-02-05", "My daughter is called Mia.")
    question = Contradiction.objects.get()
    both, later = {"Maya": "active", "Mia": "active"}, {"Maya": "ended", "Mia": "active"}
    for decision, expected in (("declined", both), ("", both), ("accepted", later), ("", both), ("accepted", later)):
        decide(question, decision, requested_by="operator:op")
        assert names() == expected, decision
        assert Contradiction.objects.count() == 1
    with pytest.raises(CannotDecide):
        decide(question, "declined", requested_by="operator:op")
    retract(Session.objects.get(session_id="s2"), None, reason="planted", requested_by="test")
    assert names() == {"Maya": "active"} and not Contradiction.objects.exists()
    undo_retraction(Retraction.objects.get(), requested_by="test")
    assert names() == later and Contradiction.objects.get().decision == "accepted"
